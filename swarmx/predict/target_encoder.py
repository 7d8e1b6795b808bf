"""`swarmx train --target-config config.json`: an encoder of the target model's own kind, taught by the log.

What lies beside the config is used: `tokenizer.json`, and the input embeddings of `model.safetensors`, reduced by PCA.
Without a tokenizer the shipped encoder's tokenizer and table stand in; without embeddings the table is drawn at random.
The transformer learns the log length of a prompt's answer; the mean of the table stays beside what it says.
Needs torch and transformers.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.bundle import read_json, shipped
from swarmx.predict.encoder import reduced_table, shrink
from swarmx.predict.features import features
from swarmx.predict.split import folds, groups_of, testing_rows
from swarmx.predict.targets import usable
from swarmx.types import CallRecord

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PretrainedConfig

Floats = NDArray[np.float32]
WIDTH, LAYERS = 96, 2
HEAD, TAIL = 64, 64  # tokens kept of each end
FOLDS = 6  # one of so many stops the training
TABLES = ("model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight")


def build_encoder(
    config_path: Path,
    records: Sequence[CallRecord],
    out: Path,
    progress: Callable[[str, float], None],
    seed: int = 0,
    epochs: int = 8,
) -> None:
    """Write an encoder directory for the model that `config_path` describes; test rows of the log are not read.

    Raises BadInput when the config is none of a causal language model with attention heads, or the log has no prompts.
    """
    from swarmx.predict.encoders import write_encoder
    from swarmx.predict.neural import TextNetwork, TokenTable, small_decoder
    from swarmx.predict.semantic import SemanticConfig, fit_encoder

    config = read_config(config_path)
    tokenizer, table, notes = tokens_of(config_path.parent, seed)
    try:
        small = shrink(config, layers=LAYERS, hidden=WIDTH)
    except ValueError as problem:
        raise BadInput(f"{config_path}: {problem}") from None
    ids, values, stop = examples(records, tokenizer, seed)
    network = TextNetwork(TokenTable(table), small_decoder(small, seed))
    fit_encoder(network, ids, values, stop, SemanticConfig(epochs=epochs, seed=seed), progress)
    about = {
        "name": f"{config.model_type}-{LAYERS}x{WIDTH}", "learned_from": "the answers in the training log",
        "notes": notes,
    }  # fmt: skip
    write_encoder(out, network, tokenizer.to_str(), about, int8=True, head=HEAD, tail=TAIL)


def read_config(path: Path) -> PretrainedConfig:
    """A Hugging Face config. Raises BadInput when it is unreadable or not that of a causal language model."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    data = read_json(path)
    kind = data.pop("model_type", None)
    try:
        config: PretrainedConfig = AutoConfig.for_model(str(kind), **data)
    except (ValueError, TypeError, KeyError) as problem:
        raise BadInput(f"{path}: model_type {kind!r} makes no config ({problem}); give a causal LM's") from None
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise BadInput(f"{path}: model_type {kind!r} is no causal language model; give the target model's config.json")
    return config


def tokens_of(folder: Path, seed: int) -> tuple[Tokenizer, Floats, list[str]]:
    """Tokenizer and token table (V, WIDTH) of a model's folder, or what stands in, and sentences about that."""
    from tokenizers import Tokenizer

    own = folder / "tokenizer.json"
    if own.is_file():
        tokenizer = Tokenizer.from_file(str(own))
        known = stored_table(folder)
        if known is not None and len(known) >= tokenizer.get_vocab_size():
            return tokenizer, reduced_table(known, WIDTH), []
        drawn = np.random.default_rng(seed).normal(size=(tokenizer.get_vocab_size(), WIDTH)).astype(np.float32)
        return tokenizer, drawn, ["No embeddings beside the config: the token table is drawn at random."]
    tokenizer = Tokenizer.from_str(gzip.decompress((shipped() / "tokenizer.json.gz").read_bytes()).decode())
    return tokenizer, shipped_table(), ["No tokenizer beside the config: the shipped tokenizer and table stand in."]


def stored_table(folder: Path) -> Floats | None:
    """Input embeddings in `model.safetensors`, (V, D), or None."""
    path = folder / "model.safetensors"
    if not path.is_file():
        return None
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        stored = set(file.keys())
        names = [name for name in TABLES if name in stored]
        return None if not names else np.asarray(file.get_tensor(names[0]).float().numpy(), dtype=np.float32)


def shipped_table() -> Floats:
    """The token table inside the shipped encoder, (V, WIDTH)."""
    import onnx

    graph = onnx.load(str(shipped() / "encoder.onnx")).graph
    arrays: dict[str, NDArray[Any]] = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    rows = next(array for array in arrays.values() if array.dtype == np.int8 and array.ndim == 2)
    scale = next(array for array in arrays.values() if array.shape == (len(rows), 1))
    table: Floats = rows.astype(np.float32) * scale
    return table


def examples(
    records: Sequence[CallRecord], tokenizer: Tokenizer, seed: int
) -> tuple[list[list[int]], Floats, NDArray[np.bool_]]:
    """Token ids, standardised log lengths (N, 1), early-stopping mask (N,) of the log's training rows with prompts."""
    calls = [records[i] for i in usable(records)]
    tested = testing_rows(calls)
    inside = [i for i, call in enumerate(calls) if call.prompt and not tested[i]]
    groups = groups_of(calls)[inside]
    if len(set(groups.tolist())) < FOLDS:
        raise BadInput(f"the log has {len(set(groups.tolist()))} prompt groups to teach an encoder; it needs {FOLDS}")
    stop = folds(groups, FOLDS, seed, [calls[i].type for i in inside]) == 0
    logs = np.log1p(np.array([[calls[i].output_tokens] for i in inside], dtype=float))
    logs = (logs - logs[~stop].mean(axis=0)) / np.maximum(logs[~stop].std(axis=0), 1e-6)
    encoded = tokenizer.encode_batch(list(features([calls[i] for i in inside]).texts), add_special_tokens=False)
    ids = [item.ids if len(item.ids) <= HEAD + TAIL else item.ids[:HEAD] + item.ids[-TAIL:] for item in encoded]
    return ids, logs.astype(np.float32), stop

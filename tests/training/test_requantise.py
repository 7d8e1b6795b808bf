"""Writing a small GGUF model in another number format keeps its values, its names and its metadata."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from requantise import requantise  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    rng = np.random.default_rng(0)
    kind = gguf.GGMLQuantizationType.Q4_1
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_1))
    writer.add_token_list(["a", "b", "ü"])
    for name in ("token_embd.weight", "blk.0.ffn_up.weight"):
        values = rng.normal(size=(8, 64)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("blk.0.attn_norm.weight", rng.normal(size=64).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    return {
        t.name: (t.tensor_type.name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(t.shape)[::-1]))
        for t in gguf.GGUFReader(path).tensors
    }


# the largest step of eight bits over a block whose largest weight is about 4 is 4 / 127, and half of it is the error
@pytest.mark.parametrize(("to", "most"), [("F32", 0.0), ("F16", 2e-3), ("Q8_0", 0.5 * 4 / 127)])
def test_matrices_change_their_format_and_keep_their_values(model: Path, tmp_path: Path, to: str, most: float) -> None:
    requantise(model, tmp_path / "out.gguf", to)
    before, after = tensors(model), tensors(tmp_path / "out.gguf")
    assert list(before) == list(after)
    for name, (_, values) in before.items():
        kind, written = after[name]
        assert kind == ("F32" if values.ndim == 1 else to)
        assert np.abs(written - values).max() <= most


def test_metadata_is_copied_but_for_the_file_type(model: Path, tmp_path: Path) -> None:
    requantise(model, tmp_path / "out.gguf", "F16")
    fields = gguf.GGUFReader(tmp_path / "out.gguf").fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["llama.block_count"].contents() == 1
    assert fields["tokenizer.ggml.tokens"].contents() == ["a", "b", "ü"]
    assert fields["general.file_type"].contents() == int(gguf.LlamaFileType.MOSTLY_F16)

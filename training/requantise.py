"""Write a GGUF model with all its matrices in one other number format: a second device kind from the same weights.

    python training/requantise.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2.f16.gguf --to F16

The matrices are dequantised and written again, so the answers stay those of the quantised model but for rounding, while
the arithmetic and the memory traffic, and with them the speed, become those of the other format. Vectors stay F32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf

from swarmx.files import replacing

FILE_TYPES = {
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "F32": gguf.LlamaFileType.ALL_F32,
}


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, file_type: int) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == gguf.Keys.General.ARCHITECTURE:
            continue
        value = file_type if name == gguf.Keys.General.FILE_TYPE else field.contents()
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=sub_type)


def requantise(source: Path, target: Path, to: str) -> None:
    reader = gguf.GGUFReader(source)
    kind = gguf.GGMLQuantizationType[to]
    with replacing(target) as temporary:
        architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
        writer = gguf.GGUFWriter(temporary, architecture)
        copy_metadata(reader, writer, int(FILE_TYPES[to]))
        for tensor in reader.tensors:
            if len(tensor.shape) == 1:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            else:
                values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a GGUF model in another number format.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--to", choices=sorted(FILE_TYPES), default="F16")
    given = parser.parse_args()
    requantise(given.source, given.target, given.to)

"""Matrices of an ONNX graph as int8 with a scale per output channel; activations are quantised as they come.

Float tables that are looked up become int8 too; a `TokenTable` holds int8 rows already and stays as it is. Needs onnx.
"""

from __future__ import annotations

import logging
from pathlib import Path

from swarmx.errors import BadInput
from swarmx.files import replacing


def to_int8(graph: Path) -> None:
    """Replace the graph by its quantised form. Raises BadInput when onnx is not installed."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise BadInput("int8 encoders need onnx; install swarmx-scheduler[train]") from None
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)  # it advises to run a pre-processing that dynamic quantisation does not need
    try:
        with replacing(graph) as temporary:
            quantize_dynamic(
                str(graph), str(temporary), per_channel=True, weight_type=QuantType.QInt8,
                op_types_to_quantize=["MatMul", "Gather"],
            )  # fmt: skip
    finally:
        root.setLevel(before)

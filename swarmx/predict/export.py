"""Trained modules -> ONNX graphs that run without torch."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import torch
from torch import nn

from swarmx.predict.features import COUNTS
from swarmx.predict.network import Heads

HEAD_INPUTS = ("embedding", "counts", "type_id", "model_id", "gram_ids", "gram_weights")


def export_heads(heads: Heads, path: Path) -> None:
    """Write `heads.onnx`: inputs `HEAD_INPUTS` of any row number, output `logs` (N, T, K)."""
    n, width = 2, 3
    example = (
        torch.zeros(n, heads.config.embedding + heads.config.near), torch.zeros(n, len(COUNTS)),
        torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64),
        torch.zeros(n, width, dtype=torch.int64), torch.zeros(n, width),
    )  # fmt: skip
    axes = {name: {0: "calls"} for name in (*HEAD_INPUTS, "logs")}
    axes["gram_ids"][1] = axes["gram_weights"][1] = "grams"
    write_graph(folded(heads), example, path, HEAD_INPUTS, ("logs",), axes)


@torch.no_grad()
def folded(heads: Heads) -> Heads:
    """The same function, fewer products: a kernel's whitening and the ridge's weights behind it become one matrix."""
    out = copy.deepcopy(heads)
    kernels = {"counts kernel": out.basis.counted, "embedding": out.basis.text, "nearness": out.basis.near}
    for name, kernel in kernels.items():
        if kernel.marks:
            rows = out.basis.columns[name]
            out.dense[rows] = (kernel.whiten.double() @ out.dense[rows].double()).float()
            kernel.forward = kernel.near  # type: ignore[method-assign]
    return out


def export_encoder(encoder: nn.Module, path: Path) -> None:
    """Write `encoder.onnx`: `ids` (N, L) and `mask` (N, L) of 0 and 1 -> `embedding` (N, E)."""
    example = (torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8))
    axes = {"ids": {0: "texts", 1: "tokens"}, "mask": {0: "texts", 1: "tokens"}, "embedding": {0: "texts"}}
    write_graph(encoder, example, path, ("ids", "mask"), ("embedding",), axes)


def write_graph(
    module: nn.Module, example: tuple[torch.Tensor, ...], path: Path,
    inputs: tuple[str, ...], outputs: tuple[str, ...], axes: dict[str, dict[int, str]],
) -> None:  # fmt: skip
    """Trace the module. The tracing exporter is used: the newer one needs another package and is ten times slower."""
    module.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it will be replaced, and on every constant shape
        torch.onnx.export(
            module, example, str(path), input_names=list(inputs), output_names=list(outputs),
            dynamic_axes=axes, dynamo=False, opset_version=17,
        )  # fmt: skip

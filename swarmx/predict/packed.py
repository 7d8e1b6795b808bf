"""Arrays inside JSON files, so that a model directory holds nothing that a reader has to trust."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def packed(array: Array) -> dict[str, Any]:
    """An array as its shape and base64 of little-endian float32."""
    raw = np.ascontiguousarray(array, dtype="<f4")
    return {"shape": list(raw.shape), "f4": base64.b64encode(raw.tobytes()).decode("ascii")}


def unpacked(data: Any, *shape: int) -> Array:
    """The array of `packed`, which must have this shape; a size of -1 is any size.

    Raises KeyError, TypeError or ValueError when it has not, or when a value is not finite.
    """
    raw = np.frombuffer(base64.b64decode(data["f4"], validate=True), dtype="<f4").astype(np.float64)
    array = raw.reshape([int(size) for size in data["shape"]])
    if array.ndim != len(shape) or any(w not in (-1, s) for w, s in zip(shape, array.shape, strict=True)):
        raise ValueError(f"an array of shape {shape} is needed, got {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError("an array holds values that are not finite")
    return array

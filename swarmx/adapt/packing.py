"""Examples as a handful of arrays: how they travel to the trainer and outlive the process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.example import Example

Arrays = dict[str, NDArray[Any]]
BYTES = ("embedding", "counts", "grams")
NUMBERS = ("seq", "finished_s", "tokens", "max_tokens")
LABELS = ("model", "type", "device", "prompt_group", "text", "kind")


def pack(examples: Sequence[Example]) -> Arrays:
    """Arrays without pickles. Lengths and contents of the byte fields stand apart; labels are numbered."""
    out: Arrays = {name: np.array([getattr(e, name) for e in examples], np.float64) for name in NUMBERS}
    out["work"] = np.array([np.nan if e.work is None else e.work for e in examples], np.float64)
    for name in BYTES:
        parts = [getattr(e, name) for e in examples]
        out[name] = np.frombuffer(b"".join(parts), np.uint8)
        out[f"{name}_size"] = np.array([len(part) for part in parts], np.uint32)
    for name in LABELS:
        known, place = np.unique(np.array([getattr(e, name) for e in examples], np.str_), return_inverse=True)
        out[f"{name}_known"], out[name] = known, place.astype(np.uint32)
    calls = {i: e.calls for i, e in enumerate(examples) if e.calls}
    out["calls"] = np.frombuffer(json.dumps(calls).encode(), np.uint8)
    return out


def unpack(arrays: Mapping[str, NDArray[Any]]) -> list[Example]:
    """Raises KeyError, ValueError or IndexError when the arrays are not what `pack` made."""
    columns: dict[str, list[Any]] = {name: arrays[name].tolist() for name in NUMBERS}
    columns["seq"] = [int(seq) for seq in columns["seq"]]
    columns["work"] = [None if np.isnan(work) else work for work in arrays["work"].tolist()]
    for name in BYTES:
        ends = np.cumsum(arrays[f"{name}_size"].astype(np.int64)).tolist()
        whole = arrays[name].tobytes()
        columns[name] = [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for name in LABELS:
        known = arrays[f"{name}_known"].tolist()
        columns[name] = [known[place] for place in arrays[name].tolist()]
    calls = {int(i): tuple((m, n) for m, n in c) for i, c in json.loads(arrays["calls"].tobytes()).items()}
    columns["calls"] = [calls.get(i, ()) for i in range(len(columns["seq"]))]
    names = [f.name for f in fields(Example)]
    return [Example(**dict(zip(names, row, strict=True))) for row in zip(*(columns[n] for n in names), strict=True)]

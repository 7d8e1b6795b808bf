"""Splitting a log by prompt group, so that no test row shares a template or a text with a training row.

The share of a group depends on its name alone, so that every run, every seed and the shipped encoder agree about what
was held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.text import clip, text_of
from swarmx.types import CallRecord

HELD_OUT = 0.2  # share of groups that no training step sees


def group_of(record: CallRecord) -> str:
    """The record's prompt group; without one its prompt's hash or text, else its workflow."""
    if record.prompt_group:
        return record.prompt_group
    if record.prompt:
        return clip(text_of(record.prompt))
    return record.prompt_hash or record.workflow_id or record.call_id


def groups_of(records: Sequence[CallRecord]) -> NDArray[np.str_]:
    """Group of each record, (N,); linked groups are one, named by the smallest name.

    Groups are linked by a text that both hold, and by a call whose prompt continues its parent's: a repaired or
    continued conversation repeats the template that it began with.
    """
    names = [group_of(record) for record in records]
    root = {name: name for name in names}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    first: dict[str, str] = {}
    place = {(record.workflow_id, record.call_id): i for i, record in enumerate(records)}
    for record, name in zip(records, names, strict=True):
        if not record.prompt:
            continue
        linked = [first.setdefault(record.prompt, name)]
        parent = place.get((record.workflow_id, record.parent_id or ""))
        if parent is not None and records[parent].prompt and record.prompt.startswith(records[parent].prompt or ""):
            linked.append(names[parent])
        for other in linked:
            a, b = find(name), find(other)
            root[max(a, b)] = min(a, b)
    return np.array([find(name) for name in names])


def share(name: str, salt: str) -> float:
    """A number in [0, 1) that depends on the name and the salt alone."""
    return int.from_bytes(hashlib.sha256(f"{salt}\0{name}".encode()).digest()[:8], "big") / 2**64


def held_out(groups: Sequence[str] | NDArray[np.str_], fraction: float = HELD_OUT) -> NDArray[np.bool_]:
    """Which rows are for testing, (N,): whole groups, the same ones in every run."""
    lots = {name: share(name, "held out") < fraction for name in set(map(str, groups))}
    return np.array([lots[str(name)] for name in groups], dtype=bool)


def folds(groups: Sequence[str] | NDArray[np.str_], k: int, seed: int) -> NDArray[np.int64]:
    """Fold 0..k-1 of each row, (N,): whole groups, the largest first into the smallest fold.

    Raises ValueError when there are fewer groups than folds.
    """
    names, index, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if len(names) < k:
        raise ValueError(f"{k} folds need at least {k} prompt groups, got {len(names)}")
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold, filled = np.zeros(len(names), np.int64), np.zeros(k, np.int64)
    for group in order:
        fold[group] = int(np.argmin(filled))
        filled[fold[group]] += sizes[group]
    return fold[index]

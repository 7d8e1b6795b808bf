"""Splitting a log by prompt group, so that no test row shares a template or a text with a training row.

What is held out depends on the log alone, so that every run and every seed agree about it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.text import clip, text_of
from swarmx.types import CallRecord

EVERY = 5  # one group of so many is held out of training


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


def held_out(groups: Sequence[str] | NDArray[np.str_], types: Sequence[str | None] | None = None) -> NDArray[np.bool_]:
    """Which rows are for testing, (N,): every fifth group, the same ones in every run.

    types : call type of each row; where given, every type has its share of the groups held out, so that a test row is
        a new wording of a known task and not a task that was never seen
    """
    names, kinds, index, _ = _kinds(groups, types)
    order = sorted(range(len(names)), key=lambda i: (kinds[i], share(names[i], "held out")))
    out = np.zeros(len(names), dtype=bool)
    out[order[EVERY // 2 :: EVERY]] = True
    tested: NDArray[np.bool_] = out[index]
    return tested


def testing_rows(records: Sequence[CallRecord]) -> NDArray[np.bool_]:
    """`held_out` of a log's records, (N,), by their linked groups and types."""
    return held_out(groups_of(records), [record.type for record in records])


def folds(
    groups: Sequence[str] | NDArray[np.str_], k: int, seed: int, types: Sequence[str | None] | None = None
) -> NDArray[np.int64]:
    """Fold 0..k-1 of each row, (N,): whole groups; each type's rows spread evenly, then all rows.

    Raises ValueError when there are fewer groups than folds.
    """
    names, kinds, index, sizes = _kinds(groups, types)
    if len(names) < k:
        raise ValueError(f"{k} folds need at least {k} prompt groups, got {len(names)}")
    drawn = np.random.default_rng(seed).permutation(len(names))
    fold, filled = np.zeros(len(names), np.int64), np.zeros(k)
    of_kind: dict[str, NDArray[np.float64]] = {}
    for group in sorted(drawn.tolist(), key=lambda i: -sizes[i]):
        own = of_kind.setdefault(kinds[group], np.zeros(k))
        fold[group] = int(np.lexsort((filled, own))[0])
        own[fold[group]] += sizes[group]
        filled[fold[group]] += sizes[group]
    return fold[index]


def _kinds(
    groups: Sequence[str] | NDArray[np.str_], types: Sequence[str | None] | None
) -> tuple[list[str], list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct groups, the type that most rows of each have ("" without types), each row's group, rows per group."""
    names, index, sizes = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True, return_counts=True)
    found: list[Counter[str]] = [Counter() for _ in names]
    for group, kind in zip(index.tolist(), types or [None] * len(index), strict=True):
        found[group][kind or ""] += 1
    kinds = [min(counts, key=lambda kind: (-counts[kind], kind)) for counts in found]
    return names.tolist(), kinds, index, sizes

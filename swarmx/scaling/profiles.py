"""Type averages learned from a log: what a live call of a type still brings, window by window.

For every call type and age, the busy slot-seconds of the call itself and of the calls it causes, in each window from
now and for each model; the mean and the mean square over the log's calls that were still running at that age. Times
follow the graph as if nothing had queued: a child begins its gap after its parent's service.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.types import CallRecord

Array = NDArray[np.float64]
AGES = 9  # a bin for calls that wait, and equal bins of age for running ones, up to 95 % of the service times
FRESH_STEPS = 12  # arrival times over which a future workflow is averaged
Busy = tuple[float, float, int]  # seconds from the first call's start, length, model


@dataclass(frozen=True)
class Profiles:
    """T types, M models, J windows, A ages.

    edges_s : (J + 1,) windows; types : (model, type) -> row
    age_edges_s : (T, A) lower edge of each bin; the first holds what waits, the others are taken at their middle
    own, own_square : (T, A, J) of the call itself; later, later_square : (T, A, M, J) of what it causes
    fresh, fresh_square : (T, M, J) per call of the type that starts a second from now on, with all that it causes
    fresh_later : (T, M, J) the same without the call itself
    below, below_square : (T, M) slot-seconds of all that it causes, whenever that is
    calls : (T, M) calls caused, mean; service_s : (T,) mean
    """

    edges_s: Array
    models: tuple[str, ...]
    types: dict[tuple[str, str | None], int]
    age_edges_s: Array
    own: Array
    own_square: Array
    later: Array
    later_square: Array
    fresh: Array
    fresh_square: Array
    fresh_later: Array
    below: Array
    below_square: Array
    calls: Array
    service_s: Array

    def row(self, model: str, type_: str | None) -> int:
        """Row of a type; of the model's average where the type was never seen; -1 where the model was not."""
        return self.types.get((model, type_), self.types.get((model, None), -1))


def windows_to(horizon_s: float, count: int = 6) -> Array:
    """(count + 1,) equal windows from now to the horizon."""
    if not 0 < horizon_s < float("inf") or count < 1:
        raise ValueError(f"windows need a positive finite horizon and count >= 1, got {horizon_s} and {count}")
    return np.linspace(0.0, horizon_s, count + 1)


def fit_profiles(records: Sequence[CallRecord], edges_s: Array) -> Profiles:
    """Learn from calls that ended well and have a dispatch time. Raises ValueError when there is none."""
    good = [r for r in records if r.status == "ok" and r.dispatched_s is not None and r.finished_s is not None]
    if not good:
        raise ValueError(f"none of {len(records)} records ended well with dispatched_s and finished_s")
    models = tuple(sorted({r.model for r in good}))
    trees = _trees(good, {m: i for i, m in enumerate(models)})
    groups: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for place, record in enumerate(good):
        groups[record.model, None].append(place)
        if record.type is not None:
            groups[record.model, record.type].append(place)
    tables = [_table([trees[i] for i in places], len(models), edges_s) for places in groups.values()]
    columns = [np.stack(column) for column in zip(*tables, strict=True)]
    return Profiles(edges_s, models, {key: i for i, key in enumerate(groups)}, *columns)


def _trees(records: Sequence[CallRecord], index: dict[str, int]) -> list[list[Busy]]:
    """For each record its own busy interval and those of all it causes, relative to its start, without queueing."""
    place = {(r.workflow_id, r.call_id): i for i, r in enumerate(records)}
    trees: list[list[Busy]] = [[(0.0, _service(r), index[r.model])] for r in records]
    order = sorted(range(len(records)), key=lambda i: (records[i].arrival_s, i))
    for i in order:
        record, offset, at = records[i], 0.0, i
        seen = {i}
        while (parent := place.get((record.workflow_id, records[at].parent_id or ""))) is not None:
            if parent in seen:
                break
            seen.add(parent)
            finished = records[parent].finished_s or 0.0
            offset += _service(records[parent]) + max(records[at].arrival_s - finished, 0.0)
            trees[parent].append((offset, trees[i][0][1], trees[i][0][2]))
            at = parent
    return trees


def _service(record: CallRecord) -> float:
    return max((record.finished_s or 0.0) - (record.dispatched_s or 0.0), 0.0)


def _table(trees: Sequence[list[Busy]], models: int, edges: Array) -> tuple[Array, ...]:
    services = np.array([tree[0][1] for tree in trees])
    width = max(float(np.quantile(services, 0.95)), 1e-9) / (AGES - 1)
    lower = np.concatenate(([0.0], width * np.arange(AGES - 1)))
    ages = np.where(np.arange(AGES) > 0, lower + width / 2, 0.0)
    windows = edges.size - 1
    own, later = np.zeros((2, AGES, windows)), np.zeros((2, AGES, models, windows))
    fresh, calls = np.zeros((3, models, windows)), np.zeros(models)
    below = np.zeros((2, models))
    counts = np.zeros(AGES)
    steps = (np.arange(FRESH_STEPS) + 0.5) * edges[-1] / FRESH_STEPS
    for tree in trees:
        intervals = np.array(tree)
        start, length, model = intervals[:, 0], intervals[:, 1], intervals[:, 2].astype(np.intp)
        alive = np.flatnonzero(ages < max(length[0], 1e-12))
        found = _per_model(start, length, model, models, edges, -ages[alive], own_apart=True)
        for row, bin_ in enumerate(alive):
            counts[bin_] += 1
            own[:, bin_] += found[row, -1], found[row, -1] ** 2
            later[:, bin_] += found[row, :-1], found[row, :-1] ** 2
        whole = _per_model(start, length, model, models, edges, steps, own_apart=True)
        fresh[2] += whole[:, :-1].sum(axis=0)
        whole[:, model[0]] += whole[:, -1]
        fresh[0] += whole[:, :-1].sum(axis=0)
        fresh[1] += (whole[:, :-1] ** 2).sum(axis=0)
        np.add.at(calls, model[1:], 1.0)
        work = np.bincount(model[1:], weights=length[1:], minlength=models)
        below += work, work**2
    own /= np.maximum(counts, 1)[:, None]
    later /= np.maximum(counts, 1)[:, None, None]
    for place in range(1, AGES):
        if not counts[place]:  # no call of the log lived so long: as if it were a little younger
            own[:, place], later[:, place] = own[:, place - 1], later[:, place - 1]
    fresh *= edges[-1] / FRESH_STEPS / len(trees)
    mean = services.mean()
    n = len(trees)
    return lower, own[0], own[1], later[0], later[1], *fresh, *(below / n), calls / n, np.asarray(mean)


def _per_model(
    start: Array,
    length: Array,
    model: NDArray[np.intp],
    models: int,
    edges: Array,
    shift: Array,
    own_apart: bool = False,
) -> Array:
    """(shifts, models [+ 1], J) busy seconds of the intervals, moved by each shift, per window; the first one apart."""
    begin = start[None, :, None] + shift[:, None, None]
    end = begin + length[None, :, None]
    overlap = np.maximum(np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1]), 0.0)
    out = np.zeros((shift.size, models + own_apart, edges.size - 1))
    where = model.copy()
    if own_apart:
        where[0] = models
    for column, target in enumerate(where):
        out[:, target] += overlap[:, column]
    return out

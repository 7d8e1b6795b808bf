"""How wrong predictions were when the predictor was trained: what later records are held against."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.drift.scores import CELLS, LEVELS_LIST, Group, scores_of
from swarmx.quantiles import LEVELS, QuantileGrid

Array = NDArray[np.float64]
ENOUGH = 20  # rows before a group has a reference of its own; so many rows of the pool stand in for a smaller one
EDGES = np.array([0.01, 0.02, 0.05, *np.arange(0.1, 0.95, 0.05), 0.95, 0.975, 0.99, 0.995])
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Ranks:
    """A sample of one score, thinned to some of its order statistics.

    edges : (E,) distinct, increasing; counts : (2 E + 1,) rows below the first edge, at it, up to the next, ...
    Where a new value stands among the rows is known up to the cell it falls into; within a cell all places are equally
    likely, since the edges are order statistics of the sample and the new value is exchangeable with it.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    @classmethod
    def of(cls, sample: Array) -> Ranks:
        """Raises ValueError when the sample is empty."""
        ordered = np.sort(sample)
        places = np.unique(np.minimum((EDGES * len(ordered)).astype(np.int64), len(ordered) - 1))
        edges = tuple(np.unique(ordered[places]).tolist())
        counts = [0.0] * (2 * len(edges) + 1)
        for value in ordered.tolist():
            counts[cell(edges, value)] += 1
        return cls(edges, tuple(counts))

    def worth(self, rows: float) -> Ranks:
        """The same shares as if so many rows had been seen."""
        factor = rows / sum(self.counts)
        return Ranks(self.edges, tuple(count * factor for count in self.counts))


def cell(edges: tuple[float, ...], value: float) -> int:
    """Index into `Ranks.counts` of the cell that a value falls into."""
    i = bisect_left(edges, value)
    return 2 * i + (i < len(edges) and edges[i] == value)


@dataclass(frozen=True, slots=True)
class GroupReference:
    """One group at training time.

    rows : seen; loss : mean tail pinball loss over the predicted mean; bias : median of log(observed / predicted
    median); coverage : (K,) share at or below each level; losses, places : the two scores that are watched
    predicted, observed : inner bounds of `CELLS` cells of about equal count, for the rank correlation
    borrowed : whether the pool stands in for a group that has no rows of its own
    """

    rows: int
    loss: float
    bias: float
    coverage: tuple[float, ...]
    losses: Ranks
    places: Ranks
    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What every group's losses were at training time, for `DriftMonitor`; stored beside the model as drift.json.

    pool : of all rows, what an unknown group is held against
    """

    pool: GroupReference
    groups: Mapping[Group, GroupReference]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[Group, QuantileGrid, float]]) -> Reference:
        """From out-of-fold or held-out predictions: (group, grid of one call, what was observed).

        Rows whose observation is not a finite number >= 0 are left out. Raises ValueError when none is left.
        """
        kept = [row for row in rows if math.isfinite(row[2]) and row[2] >= 0]
        return cls.from_arrays(
            [group for group, _, _ in kept],
            np.array([grid.values for _, grid, _ in kept]).reshape(len(kept), len(LEVELS)),
            np.array([observed for _, _, observed in kept], dtype=np.float64),
        )

    @classmethod
    def from_arrays(cls, groups: list[Group], values: Array, observed: Array) -> Reference:
        """The same from arrays: values (N, K) on `LEVELS`, observed (N,). Raises ValueError when there are no rows."""
        if not len(groups):
            raise ValueError("a drift reference needs at least one predicted and observed row")
        table = np.array([_row(grid, float(x)) for grid, x in zip(values, observed, strict=True)])
        members: dict[Group, list[int]] = defaultdict(list)
        for i, group in enumerate(groups):
            members[group].append(i)
        own = {group: _summary(table[at]) for group, at in sorted(members.items()) if len(at) >= ENOUGH}
        return cls(_summary(table), own)

    def of(self, group: Group) -> GroupReference:
        """The group's own reference; for an unknown or small group the pool's, worth `ENOUGH` rows."""
        known = self.groups.get(group)
        if known is not None:
            return known
        pool, rows = self.pool, float(min(ENOUGH, self.pool.rows))
        return GroupReference(
            pool.rows, pool.loss, pool.bias, pool.coverage, pool.losses.worth(rows), pool.places.worth(rows),
            pool.predicted, pool.observed, borrowed=True,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "pool": _as_json(self.pool),
            "groups": [{"group": list(group), **_as_json(own)} for group, own in self.groups.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reference:
        """Raises KeyError, TypeError or ValueError when the data are not what `to_json` wrote."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"drift reference has schema {data['schema']!r}, this swarmx reads {SCHEMA}")
        groups = {}
        for entry in data["groups"]:
            kind, model, device = map(str, entry["group"])
            groups[kind, model, device] = _of_json(entry)
        return cls(_of_json(data["pool"]), groups)


def _row(grid: Array, observed: float) -> tuple[float, ...]:
    """(loss, place, log ratio, predicted mean, observed, level below which it lies)."""
    found = scores_of(grid, observed)
    below = float(np.searchsorted(grid, observed))
    return found.loss, found.place, found.log_ratio, found.predicted, observed, below


def _summary(table: Array) -> GroupReference:
    loss, place, ratio, predicted, observed, below = table.T
    return GroupReference(
        len(table),
        float(loss.mean()),
        float(np.median(ratio)),
        tuple((below[:, None] <= np.arange(len(LEVELS))).mean(axis=0).tolist()),
        Ranks.of(loss),
        Ranks.of(place),
        _bounds(predicted),
        _bounds(observed),
    )


def _bounds(sample: Array) -> tuple[float, ...]:
    return tuple(np.quantile(sample, np.arange(1, CELLS) / CELLS).tolist())


def _as_json(own: GroupReference) -> dict[str, Any]:
    return {
        "rows": own.rows,
        "loss": own.loss,
        "bias": own.bias,
        "coverage": list(own.coverage),
        "losses": {"edges": list(own.losses.edges), "counts": list(own.losses.counts)},
        "places": {"edges": list(own.places.edges), "counts": list(own.places.counts)},
        "predicted": list(own.predicted),
        "observed": list(own.observed),
    }


def _of_json(data: Mapping[str, Any]) -> GroupReference:
    return GroupReference(
        int(data["rows"]),
        float(data["loss"]),
        float(data["bias"]),
        _numbers(data["coverage"], len(LEVELS_LIST)),
        _ranks(data["losses"]),
        _ranks(data["places"]),
        _numbers(data["predicted"], CELLS - 1),
        _numbers(data["observed"], CELLS - 1),
    )


def _ranks(data: Mapping[str, Any]) -> Ranks:
    edges = _numbers(data["edges"], len(data["edges"]))
    counts = _numbers(data["counts"], 2 * len(edges) + 1)
    if list(edges) != sorted(set(edges)) or min(counts) < 0 or not sum(counts) > 0:
        raise ValueError("the edges of a drift reference increase and its counts are shares of at least one row")
    return Ranks(edges, counts)


def _numbers(values: Any, wanted: int) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if len(found) != wanted or not all(map(math.isfinite, found)):
        raise ValueError(f"a drift reference needs {wanted} finite numbers here, got {len(found)}")
    return found

"""What a forecast of a whole workflow makes of the averages of its live calls' types.

A forecast says how much work a workflow still holds for each model; the log's type averages say when such work comes.
Each live call's downstream demand is scaled so that the calls of its workflow add up to the forecast's mean. Of the
variance in a window, the part that the total's variance causes is replaced by the forecast's; what the timing causes
stays (law of total variance, with timing and total independent).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import QuantileGrid
from swarmx.scaling.profiles import AGES, Profiles

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """Live calls per cell (type, age) and model, (C, M), each counted as:

    mean : its scale; timing : the square of it; total : that times the forecast's variance of the total over the type's
    Without forecasts all three are counts.
    """

    mean: Array
    timing: Array
    total: Array


class Spread:
    """Splits the variance of what a cell's call causes, (C, M, J), into that of timing and that of the total."""

    def __init__(self, profiles: Profiles) -> None:
        p = profiles
        types, models, windows = p.fresh.shape
        self.later = p.later.reshape(types * AGES, models, windows)
        variance = np.maximum(p.later_square - p.later**2, 0.0).reshape(self.later.shape)
        below = np.repeat(p.below, AGES, axis=0)[:, :, None]
        share = np.divide(self.later, below, out=np.zeros_like(self.later), where=below > 0)
        spread = np.repeat(np.maximum(p.below_square - p.below**2, 0.0), AGES, axis=0)[:, :, None]
        self.total = np.minimum(share**2 * spread, variance)
        self.timing = variance - self.total

    def of(self, weights: Weights) -> tuple[Array, Array]:
        """Mean and variance of downstream demand, (M, J)."""
        mean = np.einsum("cm,cmj->mj", weights.mean, self.later)
        variance = np.einsum("cm,cmj->mj", weights.timing, self.timing)
        return mean, variance + np.einsum("cm,cmj->mj", weights.total, self.total)


def scales(profiles: Profiles, kinds: NDArray[np.int64], work: Mapping[str, QuantileGrid]) -> tuple[Array, Array]:
    """(scale, scale² · variance ratio), (M,) each, for the live calls of one workflow.

    kinds : type rows of its live calls; work : model -> slot-seconds still to come, (K,)
    A model that no live call's type has ever led to keeps scale 1: nothing says when its work would come. So does one
    that the forecast does not name.
    """
    scale, total = np.ones(len(profiles.models)), np.ones(len(profiles.models))
    usual = profiles.below[kinds].sum(axis=0)
    spread = np.maximum(profiles.below_square - profiles.below**2, 0.0)[kinds].sum(axis=0)
    for m, model in enumerate(profiles.models):
        grid = work.get(model)
        if grid is None or usual[m] <= 0:
            continue
        scale[m] = float(grid.mean()) / usual[m]
        total[m] = float(grid.sd()) ** 2 / spread[m] if spread[m] > 0 else scale[m] ** 2
    return scale, total


class Forecasts:
    """The forecasts of live workflows, one row each: `scale` and `total` (rows, M)."""

    def __init__(self, models: int) -> None:
        self.scale, self.total = np.ones((64, models)), np.ones((64, models))
        self._rows: dict[str, int] = {}
        self._free: list[int] = []

    def put(self, workflow: str, scale: Array, total: Array) -> int:
        """Row of the workflow, with these values."""
        row = self._rows.get(workflow)
        if row is None:
            row = self._rows[workflow] = self._free.pop() if self._free else len(self._rows)
            if row == len(self.scale):
                self.scale, self.total = (np.resize(a, (2 * row, a.shape[1])) for a in (self.scale, self.total))
        self.scale[row], self.total[row] = scale, total
        return row

    def drop(self, workflow: str) -> None:
        if (row := self._rows.pop(workflow, None)) is not None:
            self._free.append(row)

    def weights(self, cells: NDArray[np.int64], rows: NDArray[np.int64], counts: Array) -> Weights:
        """Of all live calls. cells : (n,) of each; rows : (n,) of its forecast, -1 without; counts : (C,) of cells

        Most forecasts say something of few models: only what differs from the averages is added up.
        """
        models = self.scale.shape[1]
        plain = np.broadcast_to(counts[:, None], (counts.size, models))
        known = rows >= 0
        if not known.any():
            return Weights(plain, plain, plain)
        row, model = np.nonzero((self.scale != 1.0) | (self.total != 1.0))
        call, entry = matches(row, rows[known], len(self.scale))
        place = cells[known][call] * models + model[entry]

        def counted_as(values: Array) -> Array:
            extra = np.bincount(place, values[entry] - 1.0, minlength=counts.size * models)
            return plain + extra.reshape(counts.size, models)

        scale = self.scale[row, model]
        return Weights(counted_as(scale), counted_as(scale**2), counted_as(self.total[row, model]))


def matches(
    keys: NDArray[np.int64], wanted: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every pair (place in `wanted`, place in `keys`) of equal values.

    keys : must not decrease; all values of both lie in [0, count)
    """
    first = np.searchsorted(keys, np.arange(count + 1))
    found = first[wanted + 1] - first[wanted]
    at = np.repeat(np.arange(wanted.size), found)
    before = np.cumsum(found) - found
    return at, np.arange(at.size) - before[at] + first[wanted][at]

"""Online calibration beside what it could have been: nothing, one step per level (ACI), a window of residuals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.online import OnlineCalibration
from swarmx.quantiles import LEVELS, QuantileGrid, pinball_loss

Array = NDArray[np.float64]
Row = tuple[Any, QuantileGrid, float]
WINDOW = 200


class Correction(Protocol):
    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid: ...

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None: ...


class Nothing:
    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid:
        return grid

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None:
        pass


class PerLevel:
    """Gibbs and Candes (2021): each level's log shift moves by `step` against its error of coverage."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.shift: dict[Hashable, Array] = {}

    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid:
        shift = self.shift.get(group, np.zeros(len(LEVELS)))
        return QuantileGrid(LEVELS, np.maximum.accumulate(grid.values * np.exp(shift)))

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None:
        shift = self.shift.setdefault(group, np.zeros(len(LEVELS)))
        shift += self.step * ((observed > grid.values * np.exp(shift)) - (1 - LEVELS))


class Residuals:
    """Split conformal on the group's last `length` residuals of the logarithm, level by level."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.last: dict[Hashable, list[Array]] = {}

    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid:
        last = self.last.get(group, [])
        if len(last) < 30:
            return grid
        gaps = np.sort(np.array(last), axis=0)
        at = np.minimum(np.ceil(LEVELS * (len(last) + 1)).astype(int) - 1, len(last) - 1)
        shift = gaps[np.maximum(at, 0), np.arange(len(LEVELS))]
        return QuantileGrid(LEVELS, np.maximum.accumulate(grid.values * np.exp(shift)))

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None:
        last = self.last.setdefault(group, [])
        last.append(np.log(max(observed, 1e-9) / np.maximum(grid.values, 1e-9)))
        del last[: -self.length]


CALIBRATIONS: dict[str, Callable[[], Correction]] = {
    "none": Nothing,
    "ACI, step 0.02": lambda: PerLevel(0.02),
    "ACI, step 0.1": lambda: PerLevel(0.1),
    "window of 200 residuals": lambda: Residuals(200),
    "OnlineCalibration": OnlineCalibration,
}


@dataclass(frozen=True)
class Calibrated:
    """below : (N, K) whether each row lay at or below each corrected level; loss : (N,) pinball over all levels, over
    the uncorrected mean"""

    below: NDArray[np.bool_]
    loss: Array


def calibrated(correction: Correction, before: Sequence[Row], after: Sequence[Row]) -> tuple[Calibrated, Calibrated]:
    """Rows through a correction that observes each after it was used on it."""
    return _through(correction, before), _through(correction, after)


def _through(correction: Correction, rows: Sequence[Row]) -> Calibrated:
    below, loss = np.zeros((len(rows), len(LEVELS)), dtype=bool), np.zeros(len(rows))
    for i, (group, grid, observed) in enumerate(rows):
        corrected = correction.corrected(grid, group)
        below[i] = observed <= corrected.values
        loss[i] = pinball_loss(corrected, observed).mean() / max(float(grid.mean()), 1e-9)
        correction.observe(group, grid, observed)
    return Calibrated(below, loss)


def coverage_records(found: Calibrated, sd: float = 3.0) -> int | None:
    """Rows after which the share of the next `WINDOW` at or below every level lies within `sd` binomial deviations
    (3: one calibrated window in some 50 has a level outside, levels being correlated); None when that never comes."""
    allowed = sd * np.sqrt(LEVELS * (1 - LEVELS) / WINDOW) + 0.5 / WINDOW
    total = np.concatenate((np.zeros((1, len(LEVELS))), np.cumsum(found.below, axis=0)))
    for begin in range(0, len(found.below) - WINDOW):
        if np.all(np.abs((total[begin + WINDOW] - total[begin]) / WINDOW - LEVELS) <= allowed):
            return begin
    return None

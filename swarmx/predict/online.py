"""Keeps every level's coverage right between retrainings, per group, from what finished calls turn out to be.

Two corrections, both O(K) numbers a group and both the identity while the predictor is calibrated:

scale   all levels times one factor. A CUSUM of bets on the places of observations in the corrected grid notices that
        they sit too high or too low (bets as in `swarmx.drift.evidence`); the factor then becomes what the calls since
        the change say at their median. So a doubling of lengths is corrected after a dozen or two calls, at every level
        at once, those too that are hardly ever exceeded.
shape   the shares of observations between neighbouring levels, forgotten at the pace of `memory` records and mixed with
        `prior` records of a calibrated predictor, re-label the levels: the level below which a share tau truly lies is
        read off as tau. It mends spread, single levels and what the factor leaves. A change of scale clears it.

Gibbs and Candes (2021), Adaptive Conformal Inference Under Distribution Shift, move each level by itself, see
docs/adaptation.md for the comparison. Re-labelling: Kuleshov, Fenner and Ermon (2018), Accurate Uncertainties for Deep
Learning Using Calibrated Regression.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.drift.scores import LEVELS_LIST, MEDIAN, place_of
from swarmx.quantiles import LEVELS, QuantileGrid, tail_excess

Array = NDArray[np.float64]
BETS = (0.4, 0.6)
KNOTS = np.concatenate(([0.0], LEVELS, [1.0]))
NOMINAL = np.diff(KNOTS)  # (K + 1,) share of a calibrated predictor's observations between its levels
LARGEST_FACTOR = 1e6
LARGEST = 1e300  # corrected values beyond this are told as this
LOG_NOISE = math.log(1.15)  # a smaller change of scale is left to the shape
REFUTED = 20.0  # what the prior still weighs once a change was noticed
LOG_LARGEST_FACTOR = math.log(LARGEST_FACTOR)


@dataclass
class _Group:
    """factor : log of the scale correction; shares : (K + 1,) decayed counts; labels : (K,) levels to read instead
    above, below : CUSUM and how many records it has run, per bet; recent : log (observed / predicted median)"""

    prior: float
    factor: float
    shares: Array
    labels: Array
    recent: deque[float]
    above: list[list[float]] = field(default_factory=lambda: [[0.0, 0] for _ in BETS])
    below: list[list[float]] = field(default_factory=lambda: [[0.0, 0] for _ in BETS])
    records: int = 0


@dataclass
class OnlineCalibration:
    """Corrects grids between retrainings; make a new one, or `reset`, when the model changes.

    patience : records between two mistaken changes of scale, at least on average, while a group is calibrated
    memory : records over which shares are forgotten; prior : records that a calibrated predictor weighs among them
    recent : latest records from which a factor is taken; fewest : that it needs
    most_groups : bound of memory, the group least recently observed goes
    """

    patience: float = 10_000.0
    memory: float = 500.0
    prior: float = 100.0
    recent: int = 64
    fewest: int = 6
    most_groups: int = 10_000
    _groups: OrderedDict[Hashable, _Group] = field(default_factory=OrderedDict)

    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid:
        """The grid (K,) on `LEVELS` as the group's records correct it; finite and not decreasing for any grid."""
        known = self._groups.get(group)
        if known is None:
            return grid
        return QuantileGrid(LEVELS, _apply(known, grid.values))

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None:
        """A call ended; grid : as the predictor said it, uncorrected. Only finite observations >= 0 count."""
        if not (math.isfinite(observed) and observed >= 0):
            return
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group(
                self.prior, 0.0, np.zeros(len(NOMINAL)), LEVELS, deque(maxlen=self.recent)
            )
            if len(self._groups) > self.most_groups:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        known.records += 1
        known.recent.append(math.log1p(observed) - math.log1p(max(float(grid.values[MEDIAN]), 0.0)))
        scaled = observed * math.exp(-known.factor)
        place = place_of(grid.values.tolist(), scaled)
        if self._changed(known, place):
            return
        known.shares *= 1 - 1 / self.memory
        known.shares[bisect_left(LEVELS_LIST, place)] += 1
        known.labels = self._labels(known)

    def reset(self) -> None:
        """Forget everything: the model has changed."""
        self._groups.clear()

    def factors(self) -> dict[Hashable, float]:
        """Scale correction of each group, 1 where there is none; for metrics."""
        return {group: math.exp(known.factor) for group, known in self._groups.items()}

    def _labels(self, known: _Group) -> Array:
        """(K,) level of the predictor's grid below which each nominal share of observations lies."""
        mixed = (known.shares + known.prior * NOMINAL) / (known.shares.sum() + known.prior)
        truly = np.concatenate(([0.0], np.cumsum(mixed)))
        truly[-1] = 1.0
        labels: Array = np.interp(LEVELS, truly, KNOTS)
        return labels

    def _changed(self, known: _Group, place: float) -> bool:
        """Update the CUSUMs with a place; where one has run up, set the factor from the calls since it began."""
        truly = np.interp(place, np.concatenate(([0.0], known.labels, [1.0])), KNOTS)
        p = min(max(float(truly), 1e-9), 1 - 1e-9)
        limit = math.log(2 * len(BETS) * self.patience)
        run = max(_step(known.above, 1 - p, limit), _step(known.below, p, limit))
        if run < self.fewest:
            return False
        since = list(known.recent)[-min(run, self.recent) :]
        factor = min(max(median(since), -LOG_LARGEST_FACTOR), LOG_LARGEST_FACTOR)
        moved = abs(factor - known.factor) > LOG_NOISE
        if moved:
            known.factor, known.shares, known.labels = factor, np.zeros(len(NOMINAL)), LEVELS
        known.prior = min(known.prior, REFUTED)
        for sums in (known.above, known.below):
            for state in sums:
                state[:] = [0.0, 0]
        return moved

    def state(self) -> dict[str, Any]:
        """Figures for metrics: groups, and those whose scale is corrected by more than a tenth."""
        moved = sum(abs(known.factor) > math.log(1.1) for known in self._groups.values())
        return {"groups": len(self._groups), "rescaled": moved}


def _step(sums: list[list[float]], p: float, limit: float) -> int:
    """Add a record to each bet's CUSUM; the longest run among those over the limit, else 0."""
    longest = 0
    for bet, state in zip(BETS, sums, strict=True):
        gained = state[0] + math.log(bet) + (bet - 1) * math.log(p)
        state[:] = [gained, state[1] + 1] if gained > 0 else [0.0, 0]
        if state[0] >= limit:
            longest = max(longest, int(state[1]))
    return longest


def _apply(known: _Group, values: Array) -> Array:
    """(K,) values read at the group's labels, times its factor."""
    with np.errstate(over="ignore", invalid="ignore"):
        if known.labels is not LEVELS:
            read = np.interp(known.labels, LEVELS, values)
            beyond = known.labels > LEVELS[-1]
            if beyond.any():
                excess = float(tail_excess(QuantileGrid(LEVELS, values)))
                read[beyond] += excess * np.log((1 - LEVELS[-1]) / (1 - known.labels[beyond]))
            values = np.maximum.accumulate(read)
        if known.factor:
            values = values * math.exp(known.factor)
    return np.nan_to_num(np.clip(values, -LARGEST, LARGEST))

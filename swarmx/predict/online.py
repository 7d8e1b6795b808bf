"""Keeps every level's coverage right between retrainings, per group, from what finished calls turn out to be.

Two corrections, both a few hundred numbers a group and both the identity while the predictor is calibrated:

scale   all levels times one factor. A CUSUM of bets on the places of observations in the corrected grid notices that
        they sit too high, too low, too far out or too near the middle (bets as in `swarmx.drift.evidence`); the factor
        then becomes what the calls since the change say at their median. So a doubling of lengths is corrected after a
        dozen or two calls, at every level at once, those too that are hardly ever exceeded.
shape   the shares of observations between neighbouring levels and beyond them, forgotten at the pace of `memory`
        records and mixed with `prior` records of a calibrated predictor, re-label the levels: the level below which a
        share tau truly lies is read off as tau. It mends spread, single levels and what the factor leaves. A change of
        scale clears it, another noticed change makes it forget all but the records since.

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

import numpy as np
from numpy.typing import NDArray

from swarmx.drift.scores import MEDIAN, low_power, place_of
from swarmx.quantiles import LEVELS, QuantileGrid, tail_excess

Array = NDArray[np.float64]
BETS = (0.4, 0.6)
DIRECTIONS = 4  # higher, lower, farther out, nearer the middle
BEYOND = np.exp(-2.0 * np.arange(1, 7))  # the tails beyond the outer levels are resolved in steps of two e-foldings
KNOTS = np.concatenate(([0.0], LEVELS[0] * BEYOND[::-1], LEVELS, 1 - (1 - LEVELS[-1]) * BEYOND, [1.0]))
INNER: list[float] = KNOTS[1:-1].tolist()
NOMINAL = np.diff(KNOTS)  # (B,) share of a calibrated predictor's observations between the knots
NOISE = math.log(1.15)  # a smaller change of scale is left to the shape
REFUTED = 20.0  # records that the prior still weighs once a change was noticed
REFRESH = 8  # records between two readings of the shape
LARGEST = 1e300  # corrected values beyond this are told as this
LARGEST_FACTOR = math.log(1e6)
_TAIL = np.array([float(tail_excess(QuantileGrid(LEVELS, row))) for row in np.triu(np.ones((len(LEVELS),) * 2))])
_TAIL -= np.append(_TAIL[1:], 0.0)  # (K,) the mean excess beyond the last level is `values @ _TAIL`


@dataclass
class _Run:
    """CUSUM of one bet: its sum, and the records since it was last zero."""

    bet: float
    total: float = 0.0
    records: int = 0

    def add(self, log_p: float) -> None:
        self.total += math.log(self.bet) + (self.bet - 1) * log_p
        self.records += 1
        if self.total <= 0:
            self.total, self.records = 0.0, 0


@dataclass
class _Group:
    """prior, shares (B,) : of the shape; factor : log of the scale; recent : log (observed / predicted median)

    truly : (B + 1,) share of observations below each knot; labels : the levels below which the nominal shares lie, and
    read : (K, K) that reads a grid there; below : log of (label / first level) of the labels below it
    """

    prior: float
    recent: deque[float]
    shares: list[float] = field(default_factory=lambda: [0.0] * len(NOMINAL))
    factor: float = 0.0
    truly: Array | None = None
    read: Array | None = None
    below: list[float] = field(default_factory=list)
    records: int = 0
    runs: tuple[_Run, ...] = field(default_factory=lambda: tuple(_Run(bet) for bet in BETS * DIRECTIONS))


@dataclass
class OnlineCalibration:
    """Corrects grids between retrainings; make a new one, or `reset`, when the model changes.

    patience : records between two mistaken changes, at least on average, while a group is calibrated
    memory : records over which shares are forgotten; prior : records that a calibrated predictor weighs among them
    recent : latest records from which a factor is taken; fewest : that it needs
    most_groups : bound of memory, the group least recently observed goes
    """

    patience: float = 10_000.0
    memory: float = 400.0
    prior: float = 40.0
    recent: int = 64
    fewest: int = 6
    most_groups: int = 10_000
    _groups: OrderedDict[Hashable, _Group] = field(default_factory=OrderedDict)

    def corrected(self, grid: QuantileGrid, group: Hashable) -> QuantileGrid:
        """The grid (K,) on `LEVELS` as the group's records correct it; finite and not decreasing for any grid."""
        known = self._groups.get(group)
        if known is None or (known.read is None and known.factor == 0):
            return grid
        return QuantileGrid(LEVELS, _apply(known, grid.values))

    def observe(self, group: Hashable, grid: QuantileGrid, observed: float) -> None:
        """A call ended; grid : as the predictor said it, uncorrected. Only finite observations >= 0 count."""
        if not (math.isfinite(observed) and observed >= 0):
            return
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group(self.prior, deque(maxlen=self.recent))
            if len(self._groups) > self.most_groups:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        values: list[float] = grid.values.tolist()
        known.records += 1
        known.recent.append(math.log1p(observed) - math.log1p(max(values[MEDIAN], 0.0)))
        place = place_of(values, observed * math.exp(-known.factor))
        if not self._rescaled(known, place):
            _remember(known, place, 1 - 1 / self.memory)

    def reset(self) -> None:
        """Forget everything: the model has changed."""
        self._groups.clear()

    def factors(self) -> dict[Hashable, float]:
        """Scale correction of each group, 1 where there is none; for metrics."""
        return {group: math.exp(known.factor) for group, known in self._groups.items()}

    def _rescaled(self, known: _Group, place: float) -> bool:
        """Tell the bets of a place; where one has run up, learn from the calls since. True when the factor moved."""
        p = place if known.truly is None else float(np.interp(place, KNOTS, known.truly))
        p = min(max(p, 1e-9), 1 - 1e-9)
        out = max(1 - abs(2 * p - 1), 1e-9)
        logs = (math.log(1 - p), math.log(p), math.log(out), math.log(max(1 - out, 1e-9)))
        for i, run in enumerate(known.runs):
            run.add(logs[i // len(BETS)])
        limit = math.log(len(known.runs) * self.patience)
        length = max((run.records for run in known.runs if run.total >= limit), default=0)
        if length < self.fewest:
            return False
        known.prior = min(known.prior, REFUTED)
        since = list(known.recent)[-min(length, self.recent) :]
        factor, noise = _median_and_noise(since)
        moved = abs(factor - known.factor) > max(NOISE, 2 * noise)
        keep = 0.0 if moved else min(1.0, length / sum(known.shares))
        known.shares = [share * keep for share in known.shares]
        for run in known.runs:
            run.total, run.records = (0.0, 0) if moved else (min(run.total, limit), run.records)
        if moved:
            known.factor, known.truly, known.read, known.below = factor, None, None, []
        return moved


def _median_and_noise(sample: list[float]) -> tuple[float, float]:
    """Median within the largest factor, and its standard error: 1.25 sd / sqrt(n), sd = 1.48 median deviations."""
    middle = median(sample)
    deviation = median(abs(value - middle) for value in sample)
    return min(max(middle, -LARGEST_FACTOR), LARGEST_FACTOR), 1.25 * 1.48 * deviation / math.sqrt(len(sample))


def _remember(known: _Group, place: float, kept: float) -> None:
    """Count a place among the shares, and now and then read the shape off them."""
    shares = known.shares = [share * kept for share in known.shares]
    shares[bisect_left(INNER, place)] += 1
    if known.records % REFRESH == 0:
        mixed = np.array(shares) + known.prior * NOMINAL
        known.truly = np.concatenate(([0.0], np.cumsum(mixed) / mixed.sum()))
        labels = np.interp(LEVELS, known.truly, KNOTS)
        known.read = _reading(labels)
        known.below = np.log(labels[labels < LEVELS[0]] / LEVELS[0]).tolist()


def _reading(labels: Array) -> Array:
    """(K, K) matrix that reads a grid's values at other levels: linear between its own, exponential beyond the last."""
    high = np.clip(np.searchsorted(LEVELS, labels), 1, len(LEVELS) - 1)
    share = np.clip((labels - LEVELS[high - 1]) / (LEVELS[high] - LEVELS[high - 1]), 0.0, 1.0)
    rows = np.arange(len(LEVELS))
    matrix = np.zeros((len(LEVELS), len(LEVELS)))
    matrix[rows, high - 1] += 1 - share
    matrix[rows, high] += share
    beyond = np.log(np.maximum((1 - LEVELS[-1]) / np.maximum(1 - labels, 1e-12), 1.0))
    reading: Array = matrix + beyond[:, None] * _TAIL
    return reading


def _apply(known: _Group, values: Array) -> Array:
    """(K,) values read at the group's labels, times its factor."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = values if known.read is None else known.read @ values
        if known.below:
            power = low_power(values.tolist())
            for i, log_share in enumerate(known.below):
                out[i] *= math.exp(power * log_share)
        out = out * math.exp(known.factor)
        if not math.isfinite(out.sum()):  # values near the largest float
            out = np.nan_to_num(values)
    ordered: Array = np.maximum.accumulate(np.minimum(np.maximum(out, -LARGEST), LARGEST))
    return ordered

"""Sliding-window figures of one group, in sums and sketches that merge."""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasketches import kll_floats_sketch, req_floats_sketch
from numpy.typing import NDArray

from swarmx.drift.scores import CELLS, LEVELS_LIST, Scores

Array = NDArray[np.float64]


def _losses() -> req_floats_sketch:
    return req_floats_sketch(12, True)  # high ranks sharp: relative error of the tail's ranks below 2 %


def _ratios() -> kll_floats_sketch:
    return kll_floats_sketch(200)


@dataclass
class Tally:
    """Figures of some records.

    losses : sketch of the relative tail losses (REQ), log_ratios : of log (observed / predicted median) (KLL)
    below : (K,) records between one level and the next below; pairs : (CELLS, CELLS) predicted x observed
    """

    records: int = 0
    loss: float = 0.0
    losses: req_floats_sketch = field(default_factory=_losses)
    log_ratios: kll_floats_sketch = field(default_factory=_ratios)
    below: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(LEVELS_LIST) + 1, np.int64))
    pairs: NDArray[np.int64] = field(default_factory=lambda: np.zeros((CELLS, CELLS), np.int64))

    def add(self, scores: Scores, observed: float, level: int, row: int, column: int) -> None:
        """level : index of the first one not below the observation; row, column : cell of predicted, of observed."""
        self.records += 1
        self.loss += scores.loss
        self.losses.update(scores.loss)
        self.log_ratios.update(scores.log_ratio)
        self.below[level] += 1
        self.pairs[row, column] += 1

    def merged(self, *others: Tally) -> Tally:
        """All of them together; none of them changes."""
        out = Tally()
        for part in (self, *others):
            out.records += part.records
            out.loss += part.loss
            out.losses.merge(part.losses)
            out.log_ratios.merge(part.log_ratios)
            out.below = out.below + part.below
            out.pairs = out.pairs + part.pairs
        return out

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "loss": self.loss,
            "losses": base64.b64encode(self.losses.serialize()).decode(),
            "log_ratios": base64.b64encode(self.log_ratios.serialize()).decode(),
            "below": self.below.tolist(),
            "pairs": self.pairs.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """Raises KeyError, TypeError or ValueError when the data are not what `to_json` wrote."""
        below, pairs = np.array(data["below"], np.int64), np.array(data["pairs"], np.int64)
        if below.shape != (len(LEVELS_LIST) + 1,) or pairs.shape != (CELLS, CELLS):
            raise ValueError(f"a drift tally needs {len(LEVELS_LIST) + 1} level counts and {CELLS} x {CELLS} pairs")
        return cls(
            int(data["records"]),
            float(data["loss"]),
            req_floats_sketch.deserialize(base64.b64decode(data["losses"])),
            kll_floats_sketch.deserialize(base64.b64decode(data["log_ratios"])),
            below,
            pairs,
        )


@dataclass
class Window:
    """The last `length` to 2 `length` records of a group: the tally that is filling and the one before it."""

    length: int
    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    filling: Tally = field(default_factory=Tally)
    before: Tally = field(default_factory=Tally)

    def add(self, scores: Scores, observed: float, level: int) -> None:
        if self.filling.records >= self.length:
            self.before, self.filling = self.filling, Tally()
        row, column = bisect_left(self.predicted, scores.predicted), bisect_left(self.observed, observed)
        self.filling.add(scores, observed, level, row, column)

    def total(self) -> Tally:
        return self.before.merged(self.filling)

    def merged(self, other: Window) -> Window:
        """The windows of two routers, side by side."""
        filling, before = self.filling.merged(other.filling), self.before.merged(other.before)
        return Window(self.length, self.predicted, self.observed, filling, before)


@dataclass(frozen=True, slots=True)
class Figures:
    """One group's window. loss : mean relative tail pinball loss, loss_p50, loss_p95 : quantiles of it, beside
    reference_loss at training time; coverage : (K,) share at or below each level; bias : median of log (observed /
    predicted median); rank_correlation : Spearman's, from a table of cells, 0 when it cannot be told; all NaN-free
    """

    records: int
    loss: float
    loss_p50: float
    loss_p95: float
    reference_loss: float
    coverage: tuple[float, ...]
    bias: float
    rank_correlation: float


def figures(tally: Tally, reference_loss: float) -> Figures | None:
    """None when the window is empty."""
    if tally.records == 0:
        return None
    p50, p95 = tally.losses.get_quantiles([0.5, 0.95])
    return Figures(
        tally.records,
        tally.loss / tally.records,
        float(p50),
        float(p95),
        reference_loss,
        tuple((np.cumsum(tally.below[:-1]) / tally.records).tolist()),
        float(tally.log_ratios.get_quantile(0.5)),
        spearman(tally.pairs),
    )


def spearman(pairs: NDArray[np.int64]) -> float:
    """Rank correlation of two ordered classifications from their table of counts, ties at their middle rank."""
    total = int(pairs.sum())
    rows, columns = pairs.sum(axis=1), pairs.sum(axis=0)
    a, b = np.cumsum(rows) - rows / 2 - total / 2, np.cumsum(columns) - columns / 2 - total / 2
    spread = math.sqrt(float(rows @ a**2) * float(columns @ b**2))
    return float(a @ pairs @ b) / spread if spread > 0 else 0.0

"""The recent past of one pool, on a clock of its own.

The clock advances with the samples' times, but never backwards, and over a gap of more than `max_gap_s` only by one
usual step; a jump in either direction, or a duplicate, therefore ages nothing. Across a gap no rate is taken.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.samples import PoolSample, known

Array = NDArray[np.float64]
COLUMNS = (
    "at", "waiting", "running", "arrived", "finished", "ready", "committed", "service_s", "latency_ratio", "judged",
    "kept", "epoch",
)  # fmt: skip
INDEX = {name: i for i, name in enumerate(COLUMNS)}
Row = tuple[float, ...]


@dataclass
class History:
    """rows : one per accepted sample, as COLUMNS, nan where a metric was missing; `epoch` counts gaps"""

    keep_s: float = 1800.0
    max_gap_s: float = 60.0
    rows: deque[Row] = field(default_factory=deque)
    clock_s: float = 0.0
    seen_s: float | None = None
    usual_s: float = 0.0  # the last step that was no gap

    def add(self, sample: PoolSample) -> bool:
        """Take a sample; False when it is a duplicate or older than the last by less than a clock jump."""
        epoch = self.rows[-1][INDEX["epoch"]] if self.rows else 0.0
        if self.seen_s is not None:
            step = sample.observed_s - self.seen_s
            if -self.max_gap_s <= step <= 0:
                return False
            if 0 < step <= self.max_gap_s:
                self.usual_s = step
            else:
                epoch += 1
            self.clock_s += self.usual_s
        self.seen_s = sample.observed_s
        values = (sample.waiting, sample.running, sample.arrived, sample.finished)
        more = (sample.service_s, sample.latency_ratio, sample.judged, sample.kept)
        self.rows.append(
            (self.clock_s, *map(_or_nan, values), sample.count("ready"), sample.committed, *map(_or_nan, more), epoch)
        )
        while self.rows[0][0] < self.clock_s - self.keep_s:
            self.rows.popleft()
        return True

    def window(self, seconds: float) -> Array:
        """(n, columns) rows of the last `seconds`, oldest first, the latest always included."""
        rows: list[Row] = []
        for row in reversed(self.rows):
            if row[0] < self.clock_s - seconds and rows:
                break
            rows.append(row)
        return np.array(rows[::-1], dtype=np.float64).reshape(len(rows), len(COLUMNS))

    def mean(self, name: str, seconds: float) -> float | None:
        """Mean of a column over the last `seconds`, missing values left out; None when all are missing."""
        values = self.window(seconds)[:, INDEX[name]]
        values = values[np.isfinite(values)]
        return float(values.mean()) if values.size else None

    def increase(self, name: str, seconds: float) -> tuple[float, float] | None:
        """(increase of a counter, seconds it took) within the last `seconds`; resets and gaps are bridged.

        None when fewer than two samples of one epoch know the counter.
        """
        rows = self.window(seconds)
        rows = rows[np.isfinite(rows[:, INDEX[name]])]
        same = np.diff(rows[:, INDEX["epoch"]]) == 0
        if not same.any():
            return None
        steps, times = np.diff(rows[:, INDEX[name]])[same], np.diff(rows[:, 0])[same]
        after = rows[1:, INDEX[name]][same]
        return float(np.where(steps >= 0, steps, after).sum()), float(times.sum())

    def rate(self, name: str, seconds: float) -> float | None:
        """Increase of a counter per second over the last `seconds`, or None when it is not known."""
        found = self.increase(name, seconds)
        return None if found is None or found[1] <= 0 else found[0] / found[1]


def _or_nan(value: float | None) -> float:
    value = known(value)
    return nan if value is None else float(value)

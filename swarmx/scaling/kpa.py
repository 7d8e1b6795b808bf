"""The Knative pod autoscaler: concurrency over a stable window, and over a short one in a panic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import INDEX, History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class Kpa:
    """Calls in the pool per replica, against target · slots.

    A panic begins when the short window asks for `panic` times the ready replicas; until one stable window after its
    last sign, the largest short-window wish holds.
    """

    target: float = 0.7
    stable_s: float = 60.0
    panic_s: float = 6.0
    panic: float = 2.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        if sample.busy is None:
            return None
        rows = history.window(self.stable_s + self.panic_s)
        times, calls = rows[:, 0], rows[:, INDEX["waiting"]] + rows[:, INDEX["running"]]
        each = self.target * sample.slots
        recent = times >= history.clock_s - self.stable_s
        stable = _mean(calls[recent])
        short = [_mean(calls[(times > t - self.panic_s) & (times <= t)]) for t in times[recent]]
        ready = np.maximum(rows[recent, INDEX["ready"]], 1)
        panics = np.array([whole(x / each) for x in short]) >= self.panic * ready
        terms = {"stable": stable, "short": short[-1]}
        wanted = whole(stable / each)
        if panics.any():
            first = int(np.argmax(panics))
            return Want(max(wanted, *(whole(x / each) for x in short[first:])), "panic", terms)
        return Want(wanted, "concurrency", terms)


def _mean(calls: NDArray[np.float64]) -> float:
    calls = calls[np.isfinite(calls)]
    return float(calls.mean()) if calls.size else 0.0

"""What a trial shows: a canary's latencies beside the rest's, or what a shadow would have done, with intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Candidate, Decision, Prediction, ReplicaState, Start

KEPT = 5000  # latest calls that a comparison is made of
RESAMPLES = 400
ENOUGH = 30


@dataclass
class Comparison:
    """Latencies of two arms, seconds from arrival to end of calls that ended well."""

    arms: dict[str, deque[tuple[str, float]]] = field(default_factory=dict)

    def add(self, arm: str, workflow: str, seconds: float) -> None:
        self.arms.setdefault(arm, deque(maxlen=KEPT)).append((workflow, seconds))

    def report(self, ours: str, theirs: str, seed: int = 0) -> dict[str, Any]:
        """Quantiles of both and the ratio ours/theirs with a 95 % bootstrap interval over workflows."""
        a, b = self.arms.get(ours, ()), self.arms.get(theirs, ())
        report: dict[str, Any] = {ours: _quantiles(a), theirs: _quantiles(b)}
        if min(len(a), len(b)) < ENOUGH:
            return {**report, "note": f"too few calls to compare; each arm needs {ENOUGH}"}
        rng = np.random.default_rng(seed)
        draws = np.array([_draw(a, rng) / _draw(b, rng) for _ in range(RESAMPLES)])
        point = _draw(a, None) / _draw(b, None)
        for i, name in enumerate(("p50", "p95", "p99", "mean")):
            low, high = np.quantile(draws[:, i], [0.025, 0.975])
            report[f"{name}_ratio"] = {"value": float(point[i]), "ci95": [float(low), float(high)]}
        return report


def _quantiles(calls: Sequence[tuple[str, float]] | deque[tuple[str, float]]) -> dict[str, float]:
    if not calls:
        return {"n": 0}
    p50, p95, p99, mean = _draw(calls, None)
    return {"n": len(calls), "p50_s": float(p50), "p95_s": float(p95), "p99_s": float(p99), "mean_s": float(mean)}


def _draw(calls: Any, rng: np.random.Generator | None) -> np.ndarray[Any, Any]:
    """(4,) p50, p95, p99 and mean, of the calls or of a resample of whole workflows."""
    seconds = np.array([s for _, s in calls])
    if rng is not None:
        names, group = np.unique([w for w, _ in calls], return_inverse=True)
        weight = rng.multinomial(names.size, np.full(names.size, 1 / names.size))[group]
        seconds = np.repeat(seconds, weight)
    return np.array([*np.quantile(seconds, [0.5, 0.95, 0.99]), seconds.mean()])


@dataclass
class Shadow:
    """Runs a scheduler beside the one that acts: it sees the same events, and its decisions are only counted.

    Its book follows what was really done, so each of its opinions is about the present state of the real replicas.
    saved : per call, seconds of own finish and harm that its choice would have saved by its own estimate
    """

    scheduler: Scheduler
    wanted: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    agreed: int = 0
    held: int = 0
    saved: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _costs: dict[str, tuple[Candidate, ...]] = field(default_factory=dict)

    def note(self, decisions: Sequence[Decision]) -> None:
        """What it would do now."""
        for decision in decisions:
            if isinstance(decision, Start):
                self.wanted[decision.call_id] = decision.replica
                if decision.receipt is not None:
                    self._costs[decision.call_id] = decision.receipt.candidates

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> None:
        self.note(self.scheduler.arrive(call, prediction, now))

    def placed(self, call_id: str, replica: str, now: float) -> None:
        """The acting scheduler started the call there."""
        wanted = self.wanted.pop(call_id, None)
        costs = self._costs.pop(call_id, None)
        if costs is None and (receipt := self.scheduler.explain(call_id, now)) is not None:
            costs = receipt.candidates
        self.calls += 1
        self.agreed += wanted == replica
        self.held += wanted is None
        by_replica = {c.replica: c.cost_s for c in costs or ()}
        if replica in by_replica:
            self.saved.append(by_replica[replica] - min(by_replica.values()))
        self.scheduler.placed(call_id, replica, now)

    def finished(self, record: CallRecord, now: float) -> None:
        self.wanted.pop(record.call_id, None)
        self._costs.pop(record.call_id, None)
        self.note(self.scheduler.finished(record, now))

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> None:
        self.note(self.scheduler.replicas_changed(states, now))

    def report(self) -> dict[str, Any]:
        """How often it agreed, and the seconds per call that it estimates to save, with a 95 % interval."""
        report: dict[str, Any] = {"calls": self.calls, "agreed": self.agreed, "would_have_held": self.held}
        if len(self.saved) >= ENOUGH:
            values = np.array(self.saved)
            half = 1.96 * float(values.std(ddof=1)) / sqrt(values.size)
            mean = float(values.mean())
            report["saved_s_per_call"] = {"value": mean, "ci95": [mean - half, mean + half], "n": values.size}
        return report

"""Calls in the pool over slots: what most people run."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class QueueLength:
    """(waiting + running) / (target · slots); target : wanted calls per slot"""

    target: float = 1.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        busy = sample.busy
        if busy is None:
            return None
        return Want(whole(busy / (self.target * sample.slots)), "calls per slot", {"calls": busy})

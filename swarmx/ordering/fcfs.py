"""First come, first served, by call."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.types import Call


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Calls in the order of their own arrival; nobody is overtaken."""

    def key(self, call: Call, workflow_work_s: float, batched: bool) -> float:
        return call.arrival_s

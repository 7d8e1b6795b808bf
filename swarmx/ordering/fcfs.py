"""First come, first served, by call."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.ordering.contract import Asked


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Calls in the order of their own arrival; nobody is overtaken."""

    def key(self, asked: Asked) -> float:
        return asked.call.arrival_s

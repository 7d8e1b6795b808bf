"""Shortest expected call first."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.ordering.contract import Asked


@dataclass(frozen=True, slots=True)
class Sjf:
    """Calls in the order of their expected work; of the whole workflow with per="workflow".

    Least mean wait of all disciplines that do not interrupt, where the mean is known (Smith 1956). Long calls starve in
    overload: the starvation tier bounds that.
    """

    per: str = "call"

    def key(self, asked: Asked) -> float:
        if self.per == "call":
            return asked.work_s
        return asked.workflow_work_s or asked.workflow_tokens * asked.token_s

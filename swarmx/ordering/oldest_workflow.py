"""Calls of the workflow that arrived first go first, small workflows a little earlier."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.ordering.contract import Asked


@dataclass(frozen=True, slots=True)
class OldestWorkflow:
    """Key = workflow arrival + work_weight * predicted seconds of the whole workflow.

    The key never changes, so no workflow is overtaken by one that arrives more than work_weight * its own predicted
    work later. None takes 0.25 where replicas run one call at a time and 0.1 where they batch: it buys medians of small
    workflows for a little of the giants' latency. 0 needs no prediction.
    """

    work_weight: float | None = None

    def key(self, asked: Asked) -> float:
        weight = (0.1 if asked.batched else 0.25) if self.work_weight is None else self.work_weight
        return asked.call.workflow_start_s + weight * asked.workflow_work_s

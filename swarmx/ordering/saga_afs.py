"""Agent fair share: tenants by how urgent their remaining work is."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from swarmx.ordering.contract import Asked
from swarmx.types import Call
from swarmx.waiting import Waiting

Variant = Literal["task_sum", "earliest"]
MAX_TASKS = 100_000


@dataclass(slots=True)
class _Task:
    """One workflow. left : expected tokens still to be produced; open : its calls that wait or run"""

    tenant: str
    deadline_s: float
    expected_s: float
    left: float
    open: set[str] = field(default_factory=set)


class SagaAfs:
    """The tenant with the largest urgency goes first; inside a tenant, the workflow with the earliest deadline.

    variant "task_sum": urgency = sum over the tenant's workflows of remaining work / (deadline - now), as the paper has
        it; "earliest": total remaining work / (earliest deadline - now), as its published code has it
    slack : deadline = workflow arrival + slack * expected seconds of the whole workflow (a call's own deadline wins)
    epoch_s : urgencies are recomputed so often, O(workflows with open calls)
    Past its deadline a workflow's time left counts as `floor_share` of its expected seconds, and its urgency goes on
    growing with its lateness. No bound on waiting: a tenant with little urgency waits. arXiv 2605.00528.
    """

    def __init__(
        self, variant: Variant = "task_sum", slack: float = 1.5, epoch_s: float = 0.1, floor_share: float = 0.05
    ) -> None:
        if variant not in ("task_sum", "earliest"):
            raise ValueError(f"unknown variant {variant!r}; choose task_sum or earliest")
        self.variant = variant
        self.slack = slack
        self.epoch_s = epoch_s
        self.floor_share = floor_share
        self._tasks: OrderedDict[str, _Task] = OrderedDict()
        self._open: set[str] = set()  # workflows with open calls
        self._urgency: dict[str, float] = {}
        self._next = -math.inf
        self._changed = False

    def key(self, asked: Asked) -> float:
        task = self._tasks.get(asked.call.workflow)
        return asked.call.workflow_start_s if task is None else task.deadline_s

    def lane(self, call: Call) -> str:
        return call.tenant

    def score(self, lane: str) -> float:
        return -self._urgency.get(lane, 0.0)

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score

    def opened(self, lane: str) -> None:
        """Urgencies come with the epochs."""

    def closed(self, lane: str) -> None:
        """Urgencies come with the epochs."""

    def touched(self) -> Collection[str] | None:
        changed, self._changed = self._changed, False
        return None if changed else ()

    def arrived(self, asked: Asked) -> None:
        call = asked.call
        task = self._tasks.get(call.workflow)
        if task is None:
            tokens = asked.workflow_tokens
            expected_s = max(tokens * asked.token_s, 1e-9)
            due = call.workflow_start_s + self.slack * expected_s if call.deadline_s is None else call.deadline_s
            task = self._tasks[call.workflow] = _Task(call.tenant, due, expected_s, tokens)
            if len(self._tasks) > MAX_TASKS:
                self._open.discard(self._tasks.popitem(last=False)[0])
            self._next = min(self._next, asked.now)
        task.open.add(call.id)
        self._open.add(call.workflow)

    def withdrawn(self, waiting: Waiting, now: float) -> None:
        self._end(waiting, 0.0)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        if over:
            self._end(waiting, tokens)

    def passed(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + self.epoch_s
        by_tenant: dict[str, list[_Task]] = {}
        for name in self._open:
            task = self._tasks.get(name)
            if task is not None:
                by_tenant.setdefault(task.tenant, []).append(task)
        self._urgency = {tenant: self._of(tasks, now) for tenant, tasks in by_tenant.items()}
        self._changed = True

    def urgency(self, tenant: str) -> float:
        """As of the last epoch."""
        return self._urgency.get(tenant, 0.0)

    def _of(self, tasks: Iterable[_Task], now: float) -> float:
        if self.variant == "task_sum":
            return math.fsum(self._pressure(task, task.left, now) for task in tasks)
        tasks = list(tasks)
        first = min(tasks, key=lambda task: task.deadline_s)
        return self._pressure(first, math.fsum(task.left for task in tasks), now)

    def _pressure(self, task: _Task, left: float, now: float) -> float:
        least = self.floor_share * task.expected_s
        until = task.deadline_s - now
        late = max(least - until, 0.0) / task.expected_s
        return left / max(until, least) * (1 + late)

    def _end(self, waiting: Waiting, tokens: float) -> None:
        task = self._tasks.get(waiting.call.workflow)
        if task is not None:
            task.left = max(task.left - tokens, 0.0)
            task.open.discard(waiting.call.id)
            if not task.open:
                self._open.discard(waiting.call.workflow)

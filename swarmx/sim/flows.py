"""The clients: workflows begin, calls follow when what they wait for has ended, and nothing is known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from swarmx.sim.clock import Clock
from swarmx.sim.job import Job
from swarmx.sim.pool import Pool
from swarmx.sim.results import CallRows
from swarmx.sim.workload import SimCall, SimWorkflow, Workload
from swarmx.types import Call, Status


class Flow:
    """A workflow that has begun. pending : parents that each call waits for; lost : calls that will never come."""

    __slots__ = ("children", "first_row", "index", "lost", "pending", "workflow")

    def __init__(self, workflow: SimWorkflow, index: int, first_row: int) -> None:
        self.workflow = workflow
        self.index = index
        self.first_row = first_row
        self.children: list[list[int]] | None = None
        if len(workflow.calls) > 1:
            self.pending = [len(c.parents) for c in workflow.calls]
            self.lost: set[int] = set()
            self.children = [[] for _ in workflow.calls]
            for place, call in enumerate(workflow.calls):
                for parent in call.parents:
                    self.children[parent].append(place)


class Flows:
    """left : calls of the workload that have neither ended nor become impossible"""

    def __init__(
        self, workload: Workload, pools: Mapping[str, Pool], rows: CallRows, clock: Clock, by_workflow: bool, seed: int
    ) -> None:
        self.workload = workload
        self.pools = pools
        self.rows = rows
        self.clock = clock
        self.by_workflow = by_workflow
        self.rng = np.random.default_rng(seed)
        self.left = workload.call_count
        self.submit: Callable[[Job], None] = lambda job: None  # the exchange's door, set by the loop
        self._next_row = 0

    def begin(self, index: int) -> None:
        """The workflow at this place of the workload arrives; the next one is planned."""
        workflows = self.workload.workflows
        workflow = workflows[index]
        if index + 1 < len(workflows):
            self.clock.at(workflows[index + 1].arrival_s, self.begin, index + 1)
        flow = Flow(workflow, index, self._next_row)
        self._next_row += len(workflow.calls)
        for place, call in enumerate(workflow.calls):
            if not call.parents:
                if call.delay_s:
                    self._release(flow, place, call)
                else:
                    self._arrive((flow, place, call))

    def _release(self, flow: Flow, place: int, call: SimCall) -> None:
        if call.delay_s:
            self.clock.at(self.clock.now + call.delay_s, self._arrive, (flow, place, call))
        else:
            self.clock.soon(self._arrive, (flow, place, call))

    def _arrive(self, argument: tuple[Flow, int, SimCall]) -> None:
        flow, place, sim = argument
        workflow = flow.workflow
        name = workflow.id
        call = Call(
            f"{name}/{sim.key}", sim.model, self.clock.now, sim.prompt, sim.prompt_tokens, sim.max_tokens,
            f"{name}/{workflow.calls[sim.parents[-1]].key}" if sim.parents else None,
            name, workflow.arrival_s, None, workflow.tenant, sim.priority or workflow.priority, sim.type, None,
            sim.prefix_blocks,
        )  # fmt: skip
        routers = self.pools[sim.model].routers
        router = routers[0] if len(routers) == 1 else routers[self._choose(flow, len(routers))]
        if call.id in router.jobs:
            raise ValueError(f"call id {call.id!r} occurs twice; workflow ids and keys must be unique")
        job = router.jobs[call.id] = Job(call, sim, flow.first_row + place, flow, place, router)
        self.submit(job)

    def _choose(self, flow: Flow, count: int) -> int:
        return flow.index % count if self.by_workflow else int(self.rng.integers(count))

    def end(self, job: Job, status: Status) -> None:
        """The call is over for good. If not well, what waits for it will never come."""
        del job.router.jobs[job.call.id]
        self.left -= 1
        self.rows.fill(job, status, self.clock.now)
        flow: Flow = job.flow
        if flow.children is None:
            self.clock.is_over = not self.left
            return
        if status != "ok":
            self._abandon(flow, job.place)
        self.clock.is_over = not self.left
        if status != "ok":
            return
        for child in flow.children[job.place]:
            flow.pending[child] -= 1
            if not flow.pending[child]:
                self._release(flow, child, flow.workflow.calls[child])

    def _abandon(self, flow: Flow, place: int) -> None:
        gone = {place}
        for later, call in enumerate(flow.workflow.calls):
            if later not in flow.lost and not gone.isdisjoint(call.parents):
                gone.add(later)
                flow.lost.add(later)
                self.left -= 1

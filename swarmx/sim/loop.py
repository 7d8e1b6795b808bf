"""The event loop: real schedulers over simulated replicas, one clock, one heap.

Schedulers see what a real one sees, when it would: a call once its parents have ended and its tool delay has passed, a
finished call once the replica's answer has travelled back, a report once it has been sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, nan
from typing import Any, Literal, Protocol

import numpy as np

from swarmx.sim.cluster import Cluster, Fault
from swarmx.sim.job import Job
from swarmx.sim.replicas import Replica
from swarmx.sim.replicas_batched import BatchedReplica
from swarmx.sim.replicas_job import JobReplica
from swarmx.sim.results import CallTable
from swarmx.sim.workload import SimCall, SimWorkflow, Workload
from swarmx.types import (
    Call,
    CallRecord,
    Decision,
    Move,
    Prediction,
    Preempt,
    Reject,
    ReplicaState,
    Retrain,
    Start,
    Status,
)

IDLE_TICKS = 100_000  # this many ticks in a row with nothing running and nothing else to come: the scheduler is stuck


class SimulatedScheduler(Protocol):
    """What the loop drives; `swarmx.scheduler.Scheduler` is one."""

    tick_s: float

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> Sequence[Decision]: ...
    def predicted(self, call_id: str, prediction: Prediction, now: float) -> Sequence[Decision]: ...
    def started(self, call_id: str, now: float) -> Sequence[Decision]: ...
    def progress(self, call_id: str, tokens: int, now: float) -> Sequence[Decision]: ...
    def finished(self, record: CallRecord, now: float, retry: bool = False) -> Sequence[Decision]: ...
    def refused(self, call_id: str, state: ReplicaState, now: float) -> Sequence[Decision]: ...
    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> Sequence[Decision]: ...
    def tick(self, now: float) -> Sequence[Decision]: ...


class Arm(Protocol):
    """Who predicts. It may look at the truth; what it tells is what a policy gets to know."""

    name: str

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        """Prediction for the call at this place of the workflow's `calls`."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays and periods, in seconds, of everything between a router and its replicas.

    network_s : one way, for calls, first tokens, ends, refusals; decision_s : from a call's arrival until the router
    looks at it; prediction_s : from then until its prediction is there (0: with it; otherwise through `predicted`)
    report_period_s : every replica reports its state to every router (None: never again after the start), and the
    report is report_delay_s old when it comes; progress_period_s : tokens so far of every running call (None: never)
    move_s : pause of a moved call besides the network
    retries : how often a call that ended in an error is given back to the scheduler before it counts as failed
    """

    network_s: float = 0.0
    decision_s: float = 0.0
    prediction_s: float = 0.0
    report_period_s: float | None = None
    report_delay_s: float = 0.0
    progress_period_s: float | None = None
    move_s: float = 0.0
    retries: int = 3


def simulate(
    workload: Workload,
    cluster: Cluster,
    schedulers: SimulatedScheduler | Mapping[str, SimulatedScheduler | Sequence[SimulatedScheduler]],
    arm: Arm | None = None,
    timing: Timing = Timing(),
    *,
    router_of: Literal["random", "workflow"] = "random",
    seed: int = 0,
) -> CallTable:
    """Run the workload to its end and return what happened to every call.

    schedulers : one object for a cluster with one model, else model -> object; a sequence of objects is as many
        routers that share the model's replicas and see each other only through reports
    router_of : which of several routers gets a call: any, or always the same for a workflow
    A call that fails `timing.retries` + 1 times, or is rejected, ends its workflow; both are left out of latencies but
    counted.
    Raises ValueError when a model of the workload has no scheduler or replica, RuntimeError when a scheduler starts
    an unknown call or replica or never starts a call that could run.
    """
    models = cluster.models()
    if not isinstance(schedulers, Mapping):
        if len(models) != 1:
            raise ValueError(f"one scheduler serves one model, this cluster has {models}; pass a mapping")
        schedulers = {models[0]: schedulers}
    groups = {m: (s if isinstance(s, Sequence) else (s,)) for m, s in schedulers.items()}
    missing = {c.model for w in workload.workflows for c in w.calls} - (set(groups) & set(models))
    if missing:
        raise ValueError(f"no scheduler or no replica for {sorted(missing)}; the cluster serves {sorted(models)}")
    return _Loop(workload, cluster, groups, arm, timing, router_of, seed).run()


class _Router:
    """One scheduler object and the calls it knows of."""

    __slots__ = ("jobs", "pool", "scheduler", "ticking")

    def __init__(self, scheduler: SimulatedScheduler, pool: _Pool) -> None:
        self.scheduler = scheduler
        self.pool = pool
        self.jobs: dict[str, Job] = {}
        self.ticking = False


class _Pool:
    """The replicas of one model and the routers in front of them."""

    def __init__(self, replicas: Sequence[Replica], schedulers: Sequence[SimulatedScheduler]) -> None:
        self.replicas = {r.spec.id: r for r in replicas}
        self.routers = [_Router(s, self) for s in schedulers]
        self.periods: set[str] = set()


class _Flow:
    """A workflow that has begun."""

    __slots__ = ("children", "first_row", "index", "lost", "pending", "workflow")

    def __init__(self, workflow: SimWorkflow, index: int, first_row: int) -> None:
        calls = workflow.calls
        self.workflow = workflow
        self.index = index
        self.first_row = first_row
        self.lost: set[int] = set()
        self.pending = [len(c.parents) for c in calls]
        self.children: list[list[int]] | None = None
        if len(calls) > 1:
            self.children = [[] for _ in calls]
            for place, call in enumerate(calls):
                for parent in call.parents:
                    self.children[parent].append(place)


class _Loop:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        groups: Mapping[str, Sequence[SimulatedScheduler]],
        arm: Arm | None,
        timing: Timing,
        router_of: str,
        seed: int,
    ) -> None:
        self.workload, self.cluster, self.arm, self.timing = workload, cluster, arm, timing
        self.by_workflow = router_of == "workflow"
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[..., None], Any]] = []
        self.inbox: deque[tuple[Callable[..., None], Any]] = deque()
        self.number = 0
        self.left = workload.call_count
        self.in_service = 0
        self.idle_ticks = 0
        self.table = CallTable.empty(workload, cluster)
        self.next_row = 0
        self.replicas: list[Replica] = [
            BatchedReplica(s, i) if s.batched else JobReplica(s, i) for i, s in enumerate(cluster.replicas)
        ]
        self.by_id = {r.spec.id: r for r in self.replicas}
        self.pools = {
            model: _Pool([r for r in self.replicas if r.spec.model == model], group) for model, group in groups.items()
        }

    # --- time ---

    def at(self, time_s: float, action: Callable[..., None], argument: Any) -> None:
        self.number += 1
        heappush(self.heap, (time_s, self.number, action, argument))

    def after_network(self, action: Callable[..., None], argument: Any) -> None:
        if self.timing.network_s:
            self.at(self.now + self.timing.network_s, action, argument)
        else:
            self.inbox.append((action, argument))

    def run(self) -> CallTable:
        for replica in self.replicas:
            replica.up = replica.spec.ready_s <= 0
            if not replica.up:
                self.at(replica.spec.ready_s, self.fault, Fault(replica.spec.ready_s, replica.spec.id, "up"))
        for fault in self.cluster.faults:
            self.at(fault.time_s, self.fault, fault)
        for pool in self.pools.values():
            self.announce(pool)
        self.at(self.workload.workflows[0].arrival_s, self.begin, 0)
        heap, inbox = self.heap, self.inbox
        while heap and self.left:
            self.now, _, action, argument = heappop(heap)
            action(argument)
            while inbox:
                action, argument = inbox.popleft()
                action(argument)
        self.settle()
        return self.table

    def settle(self) -> None:
        """Nothing more will happen. What is still open is the scheduler's doing."""
        held = [j.call.id for p in self.pools.values() for r in p.routers for j in r.jobs.values()]
        if held:
            raise RuntimeError(
                f"{len(held)} calls were never started and nothing more will happen, first {held[0]!r}: the scheduler "
                "holds calls that could run, or no replica can take them and it did not reject them"
            )

    # --- workflows and calls ---

    def begin(self, index: int) -> None:
        workflows = self.workload.workflows
        workflow = workflows[index]
        if index + 1 < len(workflows):
            self.at(workflows[index + 1].arrival_s, self.begin, index + 1)
        flow = _Flow(workflow, index, self.next_row)
        self.next_row += len(workflow.calls)
        for place, call in enumerate(workflow.calls):
            if not call.parents:
                self.release(flow, place, call)

    def release(self, flow: _Flow, place: int, call: SimCall) -> None:
        """Its parents have ended: it arrives after its tools."""
        if call.delay_s:
            self.at(self.now + call.delay_s, self.arrive, (flow, place, call))
        else:
            self.inbox.append((self.arrive, (flow, place, call)))

    def arrive(self, argument: tuple[_Flow, int, SimCall]) -> None:
        flow, place, sim = argument
        workflow = flow.workflow
        parent = f"{workflow.id}/{workflow.calls[sim.parents[-1]].key}" if sim.parents else None
        call = Call(
            f"{workflow.id}/{sim.key}", sim.model, self.now, sim.prompt, sim.prompt_tokens, sim.max_tokens, parent,
            workflow.id, workflow.arrival_s, None, workflow.tenant, workflow.priority, sim.type, None,
            sim.prefix_blocks,
        )  # fmt: skip
        routers = self.pools[sim.model].routers
        router = routers[0] if len(routers) == 1 else routers[self.choose(flow, len(routers))]
        job = Job(call, sim, flow.first_row + place, flow, place, router)
        if call.id in router.jobs:
            raise ValueError(f"call id {call.id!r} occurs twice; workflow ids and keys must be unique")
        router.jobs[call.id] = job
        if self.timing.decision_s:
            self.at(self.now + self.timing.decision_s, self.look, job)
        else:
            self.look(job)

    def choose(self, flow: _Flow, count: int) -> int:
        return flow.index % count if self.by_workflow else int(self.rng.integers(count))

    def look(self, job: Job) -> None:
        router: _Router = job.router
        if not router.ticking:
            self.start_periods(router)
        prediction = self.arm.predict(job.flow.workflow, job.place) if self.arm is not None else None
        if prediction is not None and self.timing.prediction_s:
            self.at(self.now + self.timing.prediction_s, self.tell_prediction, (job, prediction))
            prediction = None
        self.apply(router, router.scheduler.arrive(job.call, prediction, self.now))

    def tell_prediction(self, argument: tuple[Job, Prediction]) -> None:
        job, prediction = argument
        if job.call.id in job.router.jobs:
            self.apply(job.router, job.router.scheduler.predicted(job.call.id, prediction, self.now))

    def end(self, job: Job, status: Status) -> None:
        """The call is over for good. If not well, what waits for it will never come."""
        del job.router.jobs[job.call.id]
        self.left -= 1
        self.idle_ticks = 0
        self.table.fill(job, status, self.now)
        flow: _Flow = job.flow
        if status != "ok":
            self.abandon(flow, job.place)
            return
        if flow.children is not None:
            calls = flow.workflow.calls
            for child in flow.children[job.place]:
                flow.pending[child] -= 1
                if not flow.pending[child]:
                    self.release(flow, child, calls[child])

    def abandon(self, flow: _Flow, place: int) -> None:
        """Count out everything downstream of a call that failed."""
        lost = {place}
        for later, call in enumerate(flow.workflow.calls):
            if later not in flow.lost and not lost.isdisjoint(call.parents):
                lost.add(later)
                flow.lost.add(later)
                self.left -= 1

    # --- decisions ---

    def apply(self, router: _Router, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if type(decision) is Start:
                self.start(router, decision)
            elif type(decision) is Reject:
                self.end(self.known(router, decision.call_id), "rejected")
            elif type(decision) is Preempt:
                self.preempt(self.known(router, decision.call_id))
            elif type(decision) is Move:
                self.move(router, decision)
            elif type(decision) is not Retrain:
                raise TypeError(f"unknown decision {decision!r}")

    def known(self, router: _Router, call_id: str) -> Job:
        job = router.jobs.get(call_id)
        if job is None:
            raise RuntimeError(f"the scheduler decided on call {call_id!r}, which has ended or never arrived")
        return job

    def start(self, router: _Router, decision: Start) -> None:
        job = self.known(router, decision.call_id)
        replica = router.pool.replicas.get(decision.replica)
        if replica is None:
            raise RuntimeError(f"the scheduler started {job.call.id!r} on unknown replica {decision.replica!r}")
        if job.replica is not None:
            raise RuntimeError(f"the scheduler started {job.call.id!r} twice; it is on {job.replica.spec.id!r}")
        job.replica = replica
        job.attempt += 1
        job.dispatched_s = self.now
        job.output_tokens = job.wanted_tokens
        if self.timing.network_s:
            self.at(self.now + self.timing.network_s, self.deliver, (job, job.attempt))
        else:
            self.deliver((job, job.attempt))

    def deliver(self, argument: tuple[Job, int]) -> None:
        job, attempt = argument
        replica = job.replica
        if job.attempt != attempt or replica is None:
            return
        job.running_at_dispatch, job.waiting_at_dispatch = replica.running, replica.waiting_count
        if not replica.up or job.call.prompt_tokens + 1 > replica.spec.longest_tokens:
            self.after_network(self.tell_error, (job, attempt, replica))
        elif replica.submit(job, self.now):
            self.in_service += 1
            self.idle_ticks = 0
            self.touch(replica)
        else:
            self.touch(replica)
            self.after_network(self.tell_refused, (job, attempt, replica.state(self.now)))

    def preempt(self, job: Job) -> None:
        """Stop it where it runs; what it has produced is kept and becomes part of its prompt."""
        replica = job.replica
        if replica is None:
            raise RuntimeError(f"the scheduler preempted {job.call.id!r}, which runs nowhere")
        job.attempt += 1
        job.replica = None
        if replica.remove(job, self.now):
            self.in_service -= 1
        self.touch(replica)

    def move(self, router: _Router, decision: Move) -> None:
        job = self.known(router, decision.call_id)
        target = router.pool.replicas[decision.target]
        self.preempt(job)
        job.replica = target
        self.at(self.now + self.timing.network_s + self.timing.move_s, self.deliver, (job, job.attempt))

    # --- what replicas do ---

    def wake(self, replica: Replica) -> None:
        if replica.planned_s == self.now:
            replica.planned_s = inf
            replica.wake(self.now)
            self.touch(replica)

    def touch(self, replica: Replica) -> None:
        """Pass on what happened inside and plan its next wake-up."""
        if replica.first:
            for job in replica.first:
                self.after_network(self.tell_started, (job, job.attempt))
            replica.first.clear()
        if replica.ended:
            for job in replica.ended:
                self.in_service -= 1
                self.after_network(self.tell_ended, (job, job.attempt))
            replica.ended.clear()
        if replica.due_s != replica.planned_s:
            replica.planned_s = replica.due_s
            if replica.due_s < inf:
                self.at(replica.due_s, self.wake, replica)

    def tell_started(self, argument: tuple[Job, int]) -> None:
        job, attempt = argument
        if job.attempt == attempt:
            self.apply(job.router, job.router.scheduler.started(job.call.id, self.now))

    def tell_ended(self, argument: tuple[Job, int]) -> None:
        job, attempt = argument
        if job.attempt == attempt:
            router: _Router = job.router
            self.end(job, "ok")
            self.apply(router, router.scheduler.finished(record_of(job, "ok", self.now), self.now))

    def tell_refused(self, argument: tuple[Job, int, ReplicaState]) -> None:
        job, attempt, state = argument
        if job.attempt == attempt:
            job.replica = None
            self.apply(job.router, job.router.scheduler.refused(job.call.id, state, self.now))

    def tell_error(self, argument: tuple[Job, int, Replica]) -> None:
        """An attempt failed: the call goes back to the scheduler, unless it has failed too often."""
        job, attempt, replica = argument
        if job.attempt != attempt:
            return
        job.replica = replica
        record = record_of(job, "error", self.now)
        retry = job.attempt <= self.timing.retries
        if retry:
            job.replica = None
            job.produced = 0.0
            job.started_s = job.first_token_s = nan
        else:
            self.end(job, "error")
        self.apply(job.router, job.router.scheduler.finished(record, self.now, retry))

    def fault(self, fault: Fault) -> None:
        replica = self.by_id[fault.replica]
        if fault.kind == "speed":
            replica.set_speed(fault.speed, self.now)
            self.touch(replica)
            return
        if fault.kind == "drain":
            replica.draining = True
        else:
            replica.up = fault.kind == "up"
            replica.draining = False
            for job in replica.clear(self.now):
                self.in_service -= 1
                job.replica = None
                self.after_network(self.tell_error, (job, job.attempt, replica))
        self.touch(replica)
        self.idle_ticks = 0
        self.at(self.now + fault.detect_s, self.announce, self.pools[replica.spec.model])

    # --- periods ---

    def announce(self, pool: _Pool) -> None:
        """Tell every router which replicas there are. Without reports, nothing about their load."""
        up = [r for r in pool.replicas.values() if r.up]
        if self.timing.report_period_s is None:
            states = [r.spec.state(draining=r.draining) for r in up]
        else:
            states = [r.state(self.now) for r in up]
            for replica in up:
                self.touch(replica)
        self.tell_states((pool, states))

        gone = {r.index for r in pool.replicas.values() if not r.up}
        for router in pool.routers if gone else ():
            for job in router.jobs.values():  # the scheduler takes its calls back from replicas that are gone
                if job.replica is not None and job.replica.index in gone:
                    job.replica = None
                    job.attempt += 1
        self.tell_states((pool, states))

    def tell_states(self, argument: tuple[_Pool, list[ReplicaState]]) -> None:
        pool, states = argument
        for router in pool.routers:
            self.apply(router, router.scheduler.replicas_changed(states, self.now))

    def start_periods(self, router: _Router) -> None:
        router.ticking = True
        self.at(self.now + router.scheduler.tick_s, self.tick, router)
        for name, period, action in (
            ("report", self.timing.report_period_s, self.report),
            ("progress", self.timing.progress_period_s, self.report_progress),
        ):
            if period is not None and name not in router.pool.periods:
                router.pool.periods.add(name)
                self.at(self.now + period, action, router.pool)

    def tick(self, router: _Router) -> None:
        if not router.jobs:
            router.ticking = False
            return
        self.idle_ticks = 0 if self.in_service else self.idle_ticks + 1
        if self.idle_ticks > IDLE_TICKS:
            self.left, held = 0, self.left
            raise RuntimeError(f"nothing runs, and the scheduler holds calls; {held} are left to finish")
        self.apply(router, router.scheduler.tick(self.now))
        self.at(self.now + max(router.scheduler.tick_s, 1e-6), self.tick, router)

    def report(self, pool: _Pool) -> None:
        if not any(r.jobs for r in pool.routers):
            pool.periods.discard("report")
            return
        states = [r.state(self.now) for r in pool.replicas.values() if r.up]
        for replica in pool.replicas.values():
            self.touch(replica)
        self.at(self.now + self.timing.report_delay_s, self.tell_states, (pool, states))
        self.at(self.now + (self.timing.report_period_s or inf), self.report, pool)

    def report_progress(self, pool: _Pool) -> None:
        if not any(r.jobs for r in pool.routers):
            pool.periods.discard("progress")
            return
        for replica in pool.replicas.values():
            if replica.running:
                for job, tokens in list(replica.progress(self.now)):
                    self.apply(job.router, job.router.scheduler.progress(job.call.id, int(tokens), self.now))
                self.touch(replica)
        self.at(self.now + (self.timing.progress_period_s or inf), self.report_progress, pool)


def record_of(job: Job, status: Status, now: float) -> CallRecord:
    """The row of an execution log that this attempt leaves."""
    call, replica = job.call, job.replica
    return CallRecord(
        call.id, call.model, call.arrival_s, status, call.workflow_id, call.parent_id,
        workflow_arrival_s=call.workflow_arrival_s, tenant=call.tenant, priority=call.priority, type=call.type,
        prompt=job.sim.prompt, prompt_group=job.sim.group or None, prompt_tokens=call.prompt_tokens,
        max_tokens=call.max_tokens, replica=replica.spec.id if replica else None,
        device=replica.spec.device if replica else None, dispatched_s=job.dispatched_s,
        first_token_s=job.first_token_s if job.first_token_s == job.first_token_s else None, finished_s=now,
        output_tokens=max(round(job.produced), 1) if status == "ok" else int(job.produced),
        cached_tokens=job.cached_tokens, running_at_dispatch=job.running_at_dispatch,
        waiting_at_dispatch=job.waiting_at_dispatch,
    )  # fmt: skip

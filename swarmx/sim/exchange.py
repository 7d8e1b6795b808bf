"""Between routers and replicas: decisions are carried out, and what replicas do is told, each after its delay.

Every start of a call is an attempt with a number; a message about an attempt that is no longer the call's last is
dropped when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan

from swarmx.shard import Shard
from swarmx.sim.clock import Action, Clock
from swarmx.sim.contracts import Arm, Timing
from swarmx.sim.flows import Flows
from swarmx.sim.job import Job
from swarmx.sim.pool import Router
from swarmx.sim.record import ended_call, record_of
from swarmx.sim.replicas import Replica
from swarmx.types import CallRecord, Decision, Move, Offer, Prediction, Preempt, Reject, ReplicaState, Retrain, Start

NOTHING_TOLD: dict[str, ReplicaState] = {}


class Exchange:
    """in_service : calls inside replicas; idle_ticks : ticks since something last moved"""

    def __init__(self, flows: Flows, clock: Clock, arm: Arm | None, timing: Timing) -> None:
        self.flows = flows
        self.clock = clock
        self.arm = arm
        self.timing = timing
        self.in_service = 0
        self.idle_ticks = 0
        self._limits: dict[int, tuple[float, float]] = {}  # replica -> calls that it still takes, as of when
        self.start_periods: Callable[[Router], None] = lambda router: None  # set by the loop
        self.after_network = self._after_network if timing.network_s else clock.soon

    def _after_network(self, action: Action, argument: object) -> None:
        self.clock.at(self.clock.now + self.timing.network_s, action, argument)

    # --- to the scheduler ---

    def submit(self, job: Job) -> None:
        """A client's call arrives at its router."""
        if self.timing.decision_s:
            self.clock.at(self.clock.now + self.timing.decision_s, self._look, job)
        else:
            self._look(job)

    def _look(self, job: Job) -> None:
        router: Router = job.router
        if not router.ticking:
            self.start_periods(router)
        prediction = None if self.arm is None else self.arm.predict(job.flow.workflow, job.place)
        if prediction is not None and self.timing.prediction_s:
            self.clock.at(self.clock.now + self.timing.prediction_s, self._tell_prediction, (job, prediction))
            prediction = None
        decisions = router.scheduler.arrive(job.call, prediction, self.clock.now)
        if decisions:
            self.apply(router, decisions)

    def _tell_prediction(self, argument: tuple[Job, Prediction]) -> None:
        job, prediction = argument
        if job.call.id in job.router.jobs:
            self.apply(job.router, job.router.scheduler.predicted(job.call.id, prediction, self.clock.now))

    def _tell_started(self, argument: tuple[Job, int]) -> None:
        job, attempt = argument
        if job.attempt == attempt:
            decisions = job.router.scheduler.started(job.call.id, self.clock.now)
            if decisions:
                self.apply(job.router, decisions)

    def _tell_ended(self, argument: tuple[Job, int, dict[str, ReplicaState]]) -> None:
        job, attempt, state = argument
        if job.attempt == attempt:
            now = self.clock.now
            self.flows.end(job, "ok")
            record, scheduler = ended_call(job, now), job.router.scheduler
            decisions = scheduler.finished(record, now, **state) if state else scheduler.finished(record, now)
            if decisions:
                self.apply(job.router, decisions)

    def _tell_refused(self, argument: tuple[Job, int, ReplicaState]) -> None:
        job, attempt, state = argument
        if job.attempt == attempt:
            job.replica = None
            self.apply(job.router, job.router.scheduler.refused(job.call.id, state, self.clock.now))

    def _tell_offer(self, argument: tuple[Router, Offer]) -> None:
        """It reaches the router of that name, if the pool has one."""
        sender, offer = argument
        for router in sender.pool.routers:
            if isinstance(router.scheduler, Shard) and router.scheduler.me == offer.router:
                self.apply(router, router.scheduler.offered(offer, self.clock.now))

    def _fail(self, job: Job) -> None:
        """The attempt is over and what it produced is lost; its router hears of it after the network."""
        record = record_of(job, "error", self.clock.now)
        job.replica = None
        job.produced = 0.0
        job.started_s = job.first_token_s = nan
        self.after_network(self._tell_error, (job, job.attempt, record))

    def _tell_error(self, argument: tuple[Job, int, CallRecord]) -> None:
        """The call goes back to its scheduler, unless it has failed too often."""
        job, attempt, record = argument
        if job.attempt == attempt:
            retry = job.starts <= self.timing.retries
            if not retry:
                self.flows.end(job, "error")
            self.apply(job.router, job.router.scheduler.finished(record, self.clock.now, retry))

    # --- decisions ---

    def apply(self, router: Router, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if type(decision) is Start:
                self._start(router, decision)
            elif type(decision) is Reject:
                self.idle_ticks = 0
                self.flows.end(_known(router, decision.call_id), "rejected")
            elif type(decision) is Preempt:
                job = _known(router, decision.call_id)
                self._preempt(job)
                if not decision.keeps:
                    job.produced = 0.0
                    job.first_token_s = nan
            elif type(decision) is Move:
                self._move(router, decision)
            elif type(decision) is Offer:
                self.after_network(self._tell_offer, (router, decision))
            elif type(decision) is not Retrain:
                raise TypeError(f"unknown decision {decision!r}")

    def _start(self, router: Router, decision: Start) -> None:
        job = _known(router, decision.call_id)
        replica = router.pool.replicas.get(decision.replica)
        if replica is None:
            raise RuntimeError(f"the scheduler started {job.call.id!r} on unknown replica {decision.replica!r}")
        if job.replica is not None:
            raise RuntimeError(f"the scheduler started {job.call.id!r} twice; it is on {job.replica.spec.id!r}")
        job.replica = replica
        job.attempt += 1
        job.starts += 1
        job.dispatched_s = self.clock.now
        job.output_tokens = job.wanted_tokens
        if self.timing.network_s:
            self.clock.at(self.clock.now + self.timing.network_s, self._deliver, (job, job.attempt))
        else:
            self._deliver((job, job.attempt))

    def _deliver(self, argument: tuple[Job, int]) -> None:
        job, attempt = argument
        replica = job.replica
        if job.attempt != attempt or replica is None:
            return
        job.running_at_dispatch, job.waiting_at_dispatch = replica.running, replica.waiting_count
        if not replica.up or job.call.prompt_tokens + 1 > replica.spec.longest_tokens:
            self._fail(job)
            return
        now = self.clock.now
        if (replica.spec.accepts_per_s == inf or self._accepts(replica, now)) and replica.submit(job, now):
            self.in_service += 1
            self.idle_ticks = 0
        else:
            self.after_network(self._tell_refused, (job, attempt, replica.state(now)))
        self.touch(replica)

    def _accepts(self, replica: Replica, now: float) -> bool:
        """Whether the replica's limit of calls leaves room for another, which it takes."""
        per_s, burst = replica.spec.accepts_per_s, replica.spec.accepts_burst
        left, as_of = self._limits.get(replica.index, (burst, now))
        left = min(burst, left + (now - as_of) * per_s)
        self._limits[replica.index] = (left - (left >= 1), now)
        return left >= 1

    def _preempt(self, job: Job) -> None:
        """Stop it where it is; what it has produced is kept and becomes part of its prompt."""
        replica = job.replica
        if replica is None:
            raise RuntimeError(f"the scheduler preempted {job.call.id!r}, which runs nowhere")
        job.attempt += 1
        job.replica = None
        job.started_s = nan
        if replica.remove(job, self.clock.now):
            self.in_service -= 1
        self.touch(replica)

    def _move(self, router: Router, decision: Move) -> None:
        job = _known(router, decision.call_id)
        target = router.pool.replicas[decision.target]
        self._preempt(job)
        job.replica = target
        job.carried_tokens = job.call.prompt_tokens + job.produced if decision.carries_kv else 0.0
        delay = self.timing.network_s + self.timing.move_s + decision.stall_s
        self.clock.at(self.clock.now + delay, self._deliver, (job, job.attempt))

    # --- what replicas do ---

    def _wake(self, replica: Replica) -> None:
        if replica.planned_s == self.clock.now:
            replica.planned_s = inf
            replica.wake(self.clock.now)
            self.touch(replica)

    def touch(self, replica: Replica) -> None:
        """Pass on what has happened inside, and plan the next wake-up."""
        if replica.first:
            for job in replica.first:
                self.after_network(self._tell_started, (job, job.attempt))
            replica.first.clear()
        if replica.ended:
            state = {"state": replica.state(self.clock.now)} if self.timing.answers_tell else NOTHING_TOLD
            for job in replica.ended:
                self.in_service -= 1
                self.after_network(self._tell_ended, (job, job.attempt, state))
            replica.ended.clear()
        due = replica.due_s
        if due != replica.planned_s:
            replica.planned_s = due
            if due < inf:
                self.clock.at(due, self._wake, replica)

    def drop(self, replica: Replica) -> None:
        """Everything inside is lost: each call's error is on its way."""
        for job in replica.clear(self.clock.now):
            self.in_service -= 1
            self._fail(job)
        self.touch(replica)


def _known(router: Router, call_id: str) -> Job:
    job = router.jobs.get(call_id)
    if job is None:
        raise RuntimeError(f"the scheduler decided on call {call_id!r}, which has ended or never arrived")
    return job

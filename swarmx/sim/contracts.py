"""What the simulation asks of a scheduler and of a predictor, and the delays between the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from swarmx.sim.workload import SimWorkflow
from swarmx.types import Call, CallRecord, Decision, Prediction, ReplicaState


class SimulatedScheduler(Protocol):
    """What the loop drives; `swarmx.scheduler.Scheduler` is one."""

    @property
    def tick_s(self) -> float: ...

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> Sequence[Decision]: ...
    def predicted(self, call_id: str, prediction: Prediction, now: float) -> Sequence[Decision]: ...
    def started(self, call_id: str, now: float) -> Sequence[Decision]: ...
    def progress(self, call_id: str, tokens: float, now: float) -> Sequence[Decision]: ...
    def finished(self, record: CallRecord, now: float, retry: bool = False) -> Sequence[Decision]:
        """With `Timing.answers_tell` it also gets `state`, the replica's after the call."""
        ...

    def refused(self, call_id: str, state: ReplicaState, now: float) -> Sequence[Decision]: ...
    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> Sequence[Decision]: ...
    def tick(self, now: float) -> Sequence[Decision]: ...


class Arm(Protocol):
    """Who predicts. It may look at the truth; what it tells is what a policy gets to know."""

    @property
    def name(self) -> str: ...

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        """Prediction for the call at this place of the workflow's `calls`."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays and periods, in seconds, of everything between a router and its replicas.

    network_s : one way, for calls, first tokens, ends and refusals
    decision_s : from a call's arrival until its router looks at it
    prediction_s : from then until its prediction is there (0: with it; otherwise through `predicted`)
    report_period_s : every replica reports its state to every router (None: only when the pool changes, and then
        nothing about load); a report is report_delay_s old when it comes
    answers_tell : every answer carries its replica's state to the router that asked
    heads_period_s : routers that are `swarmx.shard.Shard` tell each other their heads (None: never)
    progress_period_s : tokens so far of every decoding call (None: never)
    move_s : pause of a moved call besides the network
    retries : how often a call that ended in an error goes back to its scheduler before it counts as failed
    """

    network_s: float = 0.0
    decision_s: float = 0.0
    prediction_s: float = 0.0
    report_period_s: float | None = None
    report_delay_s: float = 0.0
    progress_period_s: float | None = None
    move_s: float = 0.0
    retries: int = 3
    answers_tell: bool = False
    heads_period_s: float | None = None

    def __post_init__(self) -> None:
        delays = (self.network_s, self.decision_s, self.prediction_s, self.report_delay_s, self.move_s)
        given = (self.report_period_s, self.progress_period_s, self.heads_period_s)
        periods = [p for p in given if p is not None]
        if min(delays) < 0 or min(periods, default=1.0) <= 0 or self.retries < 0:
            raise ValueError(f"delays and retries must not be negative and periods must be positive, got {self}")


NO_DELAY = Timing()

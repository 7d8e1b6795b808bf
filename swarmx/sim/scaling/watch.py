"""Between router and scheduler: counts what passes and keeps the book of live work, as a real gateway does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmx.scaling.foretell import Foreteller
from swarmx.scaling.live import LiveWork
from swarmx.sim.contracts import SimulatedScheduler
from swarmx.types import Call, CallRecord, Decision, Prediction, ReplicaState

SERVICE_MEMORY = 200  # ended calls over which the mean service time is taken


@dataclass
class Limits:
    """Latency limits of a call, seconds; None where there is none. total_s : arrival to end"""

    ttft_s: float | None = None
    tpot_s: float | None = None
    total_s: float | None = None

    def kept(self, record: CallRecord) -> bool:
        """Whether the ended call kept every limit."""
        end, first = record.finished_s or 0.0, record.first_token_s
        if self.total_s is not None and end - record.arrival_s > self.total_s:
            return False
        if first is None:
            return self.ttft_s is None and self.tpot_s is None
        if self.ttft_s is not None and first - record.arrival_s > self.ttft_s:
            return False
        return self.tpot_s is None or (end - first) / max(record.output_tokens - 1, 1) <= self.tpot_s


@dataclass
class Tally:
    """Counters of one pool. estimates : (time, latency over its limit) estimated for calls of the last minute"""

    limits: Limits
    arrived: int = 0
    finished: int = 0
    judged: int = 0
    kept: int = 0
    service_s: float | None = None
    estimates: deque[tuple[float, float]] = field(default_factory=deque)

    def end(self, record: CallRecord, started_s: float | None, now: float) -> None:
        self.finished += 1
        self.judged += 1
        self.kept += record.status == "ok" and self.limits.kept(record)
        if record.status == "ok" and started_s is not None:
            known, n = self.service_s, min(self.finished, SERVICE_MEMORY)
            self.service_s = now - started_s if known is None else known + (now - started_s - known) / n


class Watched:
    """A scheduler, and what passes through it. `started` is when a call's first token was seen."""

    def __init__(
        self, scheduler: SimulatedScheduler, tally: Tally, live: LiveWork | None, foreteller: Foreteller | None = None
    ) -> None:
        self.scheduler = scheduler
        self.tally = tally
        self.live = live
        self.foreteller = foreteller
        self.began: dict[str, float] = {}

    @property
    def tick_s(self) -> float:
        return self.scheduler.tick_s

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> Sequence[Decision]:
        self.tally.arrived += 1
        if self.live is not None:
            first = call.parent_id is None
            self.live.arrive(call.id, call.model, call.type, now, is_first=first, workflow=call.workflow)
        if self.foreteller is not None:
            self.foreteller.arrived(call, prediction, now)
        return self.scheduler.arrive(call, prediction, now)

    def predicted(self, call_id: str, prediction: Prediction, now: float) -> Sequence[Decision]:
        return self.scheduler.predicted(call_id, prediction, now)

    def started(self, call_id: str, now: float) -> Sequence[Decision]:
        self.began[call_id] = now
        if self.live is not None:
            self.live.started(call_id, now)
        return self.scheduler.started(call_id, now)

    def progress(self, call_id: str, tokens: float, now: float) -> Sequence[Decision]:
        return self.scheduler.progress(call_id, tokens, now)

    def finished(self, record: CallRecord, now: float, retry: bool = False) -> Sequence[Decision]:
        started = self.began.pop(record.call_id, None)
        if retry:
            self._waits(record.call_id)
        else:
            self.tally.end(record, started, now)
            if self.live is not None:
                self.live.ended(record.call_id)
            if self.foreteller is not None:
                self.foreteller.ended(record, now)
        return self.scheduler.finished(record, now, retry)

    def refused(self, call_id: str, state: ReplicaState, now: float) -> Sequence[Decision]:
        self._waits(call_id)
        return self.scheduler.refused(call_id, state, now)

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> Sequence[Decision]:
        return self.scheduler.replicas_changed(states, now)

    def tick(self, now: float) -> Sequence[Decision]:
        return self.scheduler.tick(now)

    def _waits(self, call_id: str) -> None:
        self.began.pop(call_id, None)
        if self.live is not None:
            self.live.waits(call_id)

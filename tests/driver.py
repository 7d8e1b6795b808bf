"""A small world for scheduler tests: replicas with slots, true lengths, and checks on everything that is decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Prediction, Reject, ReplicaState, Start


@dataclass
class World:
    """Runs calls on replicas of `slots` independent servers, 1 / speed seconds per token.

    Under late binding a start without a free slot, or twice, or of an unknown call, is an error.
    """

    scheduler: Scheduler
    replicas: list[ReplicaState]
    lengths: dict[str, int]
    late: bool = True
    now: float = 0.0
    running: dict[str, str] = field(default_factory=dict)
    started: list[tuple[str, str, float]] = field(default_factory=list)
    rejected: list[Reject] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)

    def run(self, calls: list[Call], predictions: dict[str, Prediction | None] | None = None) -> World:
        """Play the arrivals to the end."""
        number = count()
        events: list[tuple[float, int, str, object]] = []
        self.carry_out(self.scheduler.replicas_changed(self.replicas, 0.0), events, number)
        for call in calls:
            heappush(events, (call.arrival_s, next(number), "arrive", call))
        while events:
            self.now, _, kind, what = heappop(events)
            if kind == "arrive":
                assert isinstance(what, Call)
                prediction = (predictions or {}).get(what.id)
                decisions = self.scheduler.arrive(what, prediction, self.now)
            elif kind == "first":
                decisions = self.scheduler.started(str(what), self.now)
            else:
                call_id = str(what)
                del self.running[call_id]
                self.ended[call_id] = self.now
                record = CallRecord(call_id, "m", 0.0, "ok", output_tokens=self.lengths[call_id])
                decisions = self.scheduler.finished(record, self.now)
            self.carry_out(decisions, events, number)
            if not events and self.scheduler.queue:
                self.now += self.scheduler.tick_s
                self.carry_out(self.scheduler.tick(self.now), events, number)
                assert events, f"{len(self.scheduler.queue)} calls wait for ever"
        return self

    def carry_out(self, decisions: list[Decision], events: list[tuple[float, int, str, object]], number: count) -> None:  # type: ignore[type-arg]
        states = {r.id: r for r in self.replicas}
        for decision in decisions:
            if isinstance(decision, Reject):
                self.rejected.append(decision)
                continue
            assert isinstance(decision, Start)
            state = states[decision.replica]
            assert decision.call_id not in self.running, "started twice"
            here = sum(r == state.id for r in self.running.values())
            if self.late:
                assert here < state.slots, f"{state.id} has no free slot"
            self.running[decision.call_id] = state.id
            self.started.append((decision.call_id, state.id, self.now))
            end = self.now + self.lengths[decision.call_id] / state.speed
            heappush(events, (self.now, next(number), "first", decision.call_id))
            heappush(events, (end, next(number), "end", decision.call_id))

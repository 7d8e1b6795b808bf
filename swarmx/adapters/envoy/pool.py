"""The picker of one pool: asks the schedulers, holds calls back within their budget, keeps the book up to date.

Everything here runs on one event loop. `pick` answers where a call goes; the stream that asked reports what it sees of
the answer, and in the end that the call is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.lanes import Allowed, Lanes
from swarmx.adapters.envoy.ride import Refused, Ride, named
from swarmx.adapters.live_work import LiveDemand
from swarmx.adapters.prompts import CHARS_PER_TOKEN
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Prediction, Reject, ReplicaState, Start, Status

log = logging.getLogger(__name__)
PROGRESS_TOKENS = 16  # the book hears of a running answer every so many tokens


class Forecast(Protocol):
    """Predicts off the event loop, in bounded time; `late` gets what comes after that."""

    async def __call__(self, call: Call, late: Callable[[Prediction], None]) -> Prediction | None: ...


@dataclass(frozen=True, slots=True)
class PickLimits:
    """fallbacks : further endpoints named in the answer

    shed_waiting : calls per replica beyond its slots at which low-priority calls are refused with 429
    """

    fallbacks: int = 1
    shed_waiting: float = 8.0


class Pool:
    """forecast : None for no predictor; on_record : takes every finished call; owns_queue : set by leader election"""

    def __init__(
        self,
        lanes: Lanes,
        clock: Callable[[], float],
        limits: PickLimits,
        counters: Counters,
        forecast: Forecast | None = None,
        on_record: Callable[[Ride, CallRecord], None] | None = None,
    ) -> None:
        self.lanes, self.clock, self.limits, self.counters = lanes, clock, limits, counters
        self.forecast, self.on_record = forecast, on_record
        self.owns_queue = True
        self.rides: dict[str, Ride] = {}
        self.chars_per_token = CHARS_PER_TOKEN
        self.live: LiveDemand | None = None  # told of every call, where a scaler looks
        self.arrived = self.unserved = 0  # requests, and those of them for which there was no endpoint
        self.body_bytes = 0  # of requests that are being read or held
        self._twice = 0
        self._warned: set[str] = set()

    # ---- a call's way ----

    async def pick(self, call: Call, allowed: Allowed, hold_s: float) -> Ride:
        """The ride with its address set, at the latest hold_s seconds after the call's arrival.

        Raises Refused: 503 without a usable endpoint, 429 when the call is shed.
        """
        self.arrived += 1
        self._admit(call, allowed)
        said = call
        while call.id in self.rides:  # a client may also send such a number as part of an id
            self._twice += 1
            call = named(said, self._twice)
        due = call.arrival_s + hold_s
        ride = self.rides[call.id] = Ride(call, allowed, self._lane(allowed, hold_s))
        try:
            if self.forecast is not None:
                ride.prediction = await self.forecast(call, lambda said: self._told_late(ride, said))
                ride.lane = self._lane(allowed, hold_s)
            if self.live is not None:
                self.live.arrived(call, ride.prediction, self.clock())
            await self._bind(ride, due)
        except BaseException:
            self.end(ride, "cancelled")
            raise
        if not ride.address:
            self.end(ride, "rejected")
            raise Refused(503, ride.reason or "no endpoint can take this call")
        return ride

    def tokens_of(self, chars: int) -> int:
        """Prompt tokens to expect of a text, at most what the largest endpoint takes: it counts exactly itself."""
        states = self.lanes.cluster.states
        longest = max((min(s.context_tokens, s.kv_capacity_tokens) for s in states), default=2)
        return max(1, min(round(chars / self.chars_per_token), longest - 1))

    def _told_late(self, ride: Ride, prediction: Prediction) -> None:
        """The prediction that was not there in time has come; it counts while the call is held."""
        if not ride.address and not ride.over:
            ride.prediction = prediction
            self._carry_out(ride.lane.predicted(ride.call.id, prediction, self.clock()))

    def first_token(self, ride: Ride) -> None:
        now = self.clock()
        if ride.first_token_s is None:
            ride.first_token_s = now
            if ride.booked:
                self._carry_out(ride.lane.started(ride.call.id, now))

    def progress(self, ride: Ride) -> None:
        """The answer has grown; cheap until another `PROGRESS_TOKENS` tokens have come."""
        if ride.booked and ride.answer.tokens - ride.told_tokens >= PROGRESS_TOKENS:
            ride.told_tokens = ride.answer.tokens
            self._carry_out(ride.lane.progress(ride.call.id, ride.told_tokens, self.clock()))

    def served_by(self, ride: Ride, address: str) -> None:
        """The proxy says which endpoint took the call: after a failed try it is not the one we named first."""
        if address == ride.address or address not in self.lanes.cluster.index or not ride.booked:
            return
        self.counters.add("fallbacks")
        now = self.clock()
        ride.lane.placed(ride.call.id, address, now)
        ride.address = address
        self._carry_out(self.lanes.owner.tick(now))  # the endpoint that was named first has a free slot again

    def end(self, ride: Ride, status: Status) -> None:
        """The call is over, in whatever way; only the first end counts."""
        if ride.over:
            return
        ride.over = True
        del self.rides[ride.call.id]
        now = self.clock()
        learned = status == "ok" and ride.answer.tokens > 0  # an unread answer must not teach a length of 0
        if ride.booked:
            self._carry_out(ride.lane.finished(ride.record(status if learned else "cancelled", now), now))
            if ride.lane is not self.lanes.owner:
                self._carry_out(self.lanes.owner.tick(now))
        self._learn_ratio(ride)
        self.counters.ended(status, now - ride.call.arrival_s)
        record = ride.record(status, now)
        if self.live is not None:
            self.live.ended(record, now)
        if self.on_record is not None:
            self.on_record(ride, record)

    # ---- replicas and time ----

    def set_states(self, states: Sequence[ReplicaState]) -> None:
        """The endpoints as they are now. Calls on one that is gone leave the book; their answers may still come."""
        now, known, cluster = self.clock(), {state.id for state in states}, self.lanes.cluster
        for state in [s for s in cluster.states if s.id not in known]:
            cluster.report(replace(state, draining=True))  # nothing may be bound there while its calls are taken off
        for ride in [r for r in self.rides.values() if r.booked and r.address and r.address not in known]:
            ride.booked = False
            self._carry_out(ride.lane.finished(ride.record("error", now), now))
        self._carry_out(self.lanes.owner.replicas_changed(states, now))

    def report(self, state: ReplicaState) -> None:
        """A fresh report of one endpoint."""
        if state.id in self.lanes.cluster.index:
            self.lanes.cluster.report(state)

    def set_owner(self, owns_queue: bool) -> None:
        """Leader election has spoken; a picker that loses the queue answers all held calls at once."""
        self.owns_queue = owns_queue
        if not owns_queue:
            for ride in list(self.rides.values()):
                if ride.woken is not None and not ride.woken.done():
                    self._overdue(ride)

    def warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message)

    def tick(self) -> None:
        """Time has passed; call it every `owner.tick_s` seconds, and after reports."""
        self._carry_out(self.lanes.owner.tick(self.clock()))

    # ---- decisions ----

    def _admit(self, call: Call, allowed: Allowed) -> None:
        if not self.lanes.usable(allowed):
            self.unserved += 1
            raise Refused(503, "no ready endpoint" + ("" if allowed is None else " in the subset"), 1.0)
        if call.priority == "low" and self.lanes.waiting_per_replica() >= self.limits.shed_waiting:
            raise Refused(429, "the pool is saturated and this call has low priority", 5.0)

    def _lane(self, allowed: Allowed, hold_s: float) -> Scheduler:
        if not self.owns_queue:
            return self.lanes.standby
        restricted = allowed is not None and not allowed.issuperset(self.lanes.cluster.index)
        at_once = restricted or (self.lanes.holds and hold_s <= 0)
        return self.lanes.at_once if at_once else self.lanes.owner

    async def _bind(self, ride: Ride, due: float) -> None:
        now = self.clock()
        if ride.lane is not self.lanes.owner:
            self._bind_at_once(ride, now, ride.lane)
            return
        self._carry_out(ride.lane.arrive(ride.call, ride.prediction, now))
        if ride.address or ride.reason:
            return
        loop = asyncio.get_running_loop()
        ride.woken = loop.create_future()
        timer = loop.call_later(max(0.0, due - now), self._overdue, ride)
        try:
            await ride.woken
        finally:
            timer.cancel()

    def _overdue(self, ride: Ride) -> None:
        """The call's time budget is over: it goes to the best endpoint now, free or not."""
        if ride.address or ride.over:
            return
        self.counters.add("overdue")
        now = self.clock()
        self._carry_out(ride.lane.finished(ride.record("cancelled", now), now))
        self._bind_at_once(ride, now)

    def _bind_at_once(self, ride: Ride, now: float, lane: Scheduler | None = None) -> None:
        ride.lane = lane if lane is not None else self.lanes.at_once
        self.lanes.restrict(ride.lane, ride.allowed)
        self._carry_out(ride.lane.arrive(ride.call, ride.prediction, now))
        outside = ride.allowed is not None and ride.address not in ride.allowed
        if not ride.address or outside:  # nothing that is allowed can take a call of this size
            ride.booked, ride.address = False, ""
            self._carry_out(ride.lane.finished(ride.record("cancelled", now), now))
            self._wake(ride)

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start | Reject):
                ride = self.rides.get(decision.call_id)
                if ride is None:
                    continue
                if isinstance(decision, Reject):
                    ride.reason, ride.booked = decision.reason, False
                else:
                    self._place(ride, decision.replica)
                self._wake(ride)
            else:  # a proxy can neither move nor stop a request that it has sent
                self.counters.add("not_carried_out")

    def _place(self, ride: Ride, address: str) -> None:
        cluster = self.lanes.cluster
        ride.address = address
        if self.live is not None:
            self.live.started(ride.call.id, self.clock())
        ride.decided_s = self.clock() if ride.decided_s is None else ride.decided_s
        ride.seen = cluster.states[cluster.index[address]]
        others = [name for name in self.lanes.usable(ride.allowed) if name != address] if self.limits.fallbacks else []
        ride.fallbacks = tuple(others[: self.limits.fallbacks])

    def _wake(self, ride: Ride) -> None:
        if ride.woken is not None and not ride.woken.done():
            ride.woken.set_result(None)

    def _learn_ratio(self, ride: Ride) -> None:
        """Follow how many characters a prompt token has in this pool, from servers' own counts."""
        counted, guessed = ride.answer.prompt_tokens, ride.call.prompt_tokens
        if counted and guessed > 16:
            ratio = self.chars_per_token * guessed / counted
            self.chars_per_token += 0.02 * (min(max(ratio, 1.0), 16.0) - self.chars_per_token)

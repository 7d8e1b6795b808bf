"""What one handle knows of its calls, and where it would send them: everything of the router that is not Ray's.

A call is entered when it is first ranked, so that calls that come at the same time see each other, and it is entered
once, however often Serve asks again. `routed` and `completed` are Serve's word on it. Serve's routing statistics bring
the replicas' numbers and their latest ended calls, from which lengths and speeds are learned.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.ray_serve import identity
from swarmx.adapters.ray_serve.counters import Counters
from swarmx.adapters.ray_serve.ride import Pending, Ride
from swarmx.adapters.ray_serve.states import Stats, rows_since
from swarmx.adapters.ray_serve.watching import Joined, Watcher
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Receipt, ReplicaState, Start

WORKFLOWS = 20_000  # whose first sight is remembered
AGAIN_S = 1.0  # a call whose try ended without being accepted is asked for again within this, or it is gone
PAST = 4096  # ended calls that are remembered, to understand reports that were on their way when they ended
UNHEARD_S = 60.0  # an accepted place that was never used, by Serve's two-step calls


@dataclass
class Desk:
    """model : the deployment's name; preset, options : of the scheduler; clock : seconds since the epoch

    on_done : told of the id of every call that is over; watchers : told of calls, see `watching`
    on_receipt : takes the receipt of each call bound here, None makes none; on_record : takes that of each ended call
    began : first sight of each workflow, which all handles of a process may share
    """

    model: str
    preset: str
    options: dict[str, Any]
    clock: Callable[[], float]
    counters: Counters
    on_done: Callable[[str], None] = lambda call_id: None
    rides: dict[int, Ride] = field(default_factory=dict)
    watchers: tuple[Watcher, ...] = ()
    on_receipt: Callable[[Receipt], None] | None = None
    on_record: Callable[[Ride, CallRecord], None] = lambda ride, record: None
    began: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.preset, dict(self.options))
        self.lanes.owner.receipts = self.lanes.at_once.receipts = self.on_receipt is not None
        self.joined = Joined(self._learn, lambda: self.counters.add("unrecorded"))
        self._internal: dict[str, list[Ride]] = defaultdict(list)
        self._ids: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._swept_s = 0.0
        self._past: deque[tuple[str, float, float]] = deque(maxlen=PAST)  # replica, bound, ended

    # ---- a call's way ----

    def enter(self, pending: Pending, context: Mapping[str, str]) -> Ride:
        """The call of a pending request: a new one, or the one that it has."""
        ride = self.rides.get(id(pending))
        if ride is None:
            now = self.clock()
            asked = identity.read(pending.args, pending.kwargs)
            call = identity.call_of(asked, pending.metadata, self.model, context, now)
            said, internal = call.workflow_arrival_s, pending.metadata.internal_request_id
            ride = Ride(pending, self._named(call), identity.key_of(internal, asked), self._at_once, now)
            ride.preset, ride.workflow_arrival_s = self.preset, said
            self.rides[id(pending)] = ride
            self._ids[ride.call.id] = id(pending)
            self._internal[internal].append(ride)
            self._sweep(now)
        ride.asks, ride.early = ride.asks + 1, ""
        pending.future.add_done_callback(lambda future: self.end(ride, "withdrawn") if future.cancelled() else None)
        return ride

    def bind(self, ride: Ride, allowed: Sequence[str] | None = None) -> list[str]:
        """Bind it here and now; replicas in the order in which Serve shall try them.

        allowed : where it may go; None for everywhere
        """
        now, lane = self.clock(), ride.lane
        inside = None if allowed is None else frozenset(allowed)
        if hasattr(lane.parts.placement, "allowed"):
            self.lanes.restrict(lane, inside)
        if ride.call.id in lane.cluster.flights:  # Serve asks again: that replica did not take it
            state = lane.cluster.states[lane.cluster.index[ride.replica]]
            decisions = lane.refused(ride.call.id, state, now)
        elif lane.queue.get(ride.call.id) is not None:
            decisions = lane.tick(now)
        else:
            decisions = lane.arrive(ride.call, ride.prediction, now)
        self._adopt(decisions)
        rest = [name for name in self.lanes.usable(inside) if name != ride.replica]
        return [ride.replica, *rest] if ride.replica and (inside is None or ride.replica in inside) else rest

    def place(self, ride: Ride, replica: str) -> None:
        """Somebody else has bound it there."""
        now = self.clock()
        ride.replica = replica
        if ride.call.id not in ride.lane.cluster.flights and ride.lane.queue.get(ride.call.id) is None:
            self._adopt([d for d in ride.lane.arrive(ride.call, ride.prediction, now) if not _is_of(d, ride)])
        ride.lane.placed(ride.call.id, replica, now)

    def release(self, ride: Ride) -> None:
        """Its replica did not take it, and somebody else will bind it anew."""
        call, now = ride.call, self.clock()
        self._adopt(ride.lane.finished(CallRecord(call.id, call.model, call.arrival_s, "cancelled"), now))
        ride.replica, ride.tried = "", ride.replica

    def emptiest(self, allowed: Sequence[str]) -> list[str]:
        """Those that can take a call now, emptiest first."""
        return self.lanes.usable(frozenset(allowed))

    def routed(self, pending: Pending, replica: str) -> Ride | None:
        """A replica accepted it."""
        ride = self.rides.get(id(pending))
        if ride is None:
            return None
        self.counters.add("routed")
        ride.routed = True
        self._accepted(ride, replica)
        if ride.replica != replica or ride.call.id not in ride.lane.cluster.flights:
            self.place(ride, replica)
        if ride.early == replica:
            self.end(ride, "completed")
        return ride

    def completed(self, replica: str, internal: str) -> None:
        """A request with that internal id ended there, or one that the replica did not take."""
        same = self._internal.get(internal, ())
        for ride in same:
            if ride.routed and ride.replica == replica:
                self.end(ride, "completed")
                return
        for ride in same:
            if not ride.routed and ride.replica == replica:
                ride.early = replica
                asyncio.get_running_loop().call_later(AGAIN_S, self._gone, ride, ride.asks)
                return

    def end(self, ride: Ride, event: str) -> None:
        """It is over here; only the first end counts."""
        if self.rides.pop(id(ride.pending), None) is None:
            return
        self.counters.add(event)
        internal = ride.pending.metadata.internal_request_id
        self._internal[internal].remove(ride)
        if not self._internal[internal]:
            del self._internal[internal]
        del self._ids[ride.call.id]
        call, now = ride.call, self.clock()
        if (flight := ride.lane.cluster.flights.get(call.id)) is not None:
            self._past.append((flight.replica, flight.started_s, now))
        self._adopt(ride.lane.finished(CallRecord(call.id, call.model, call.arrival_s, "cancelled"), now))
        self.tell("over", ride, now)
        self.joined.over(ride, now)
        self.on_done(call.id)

    # ---- replicas ----

    def replicas_changed(self, found: Iterable[tuple[ReplicaState, Stats]]) -> None:
        """Replicas and their latest statistics, as Serve tells them."""
        states, now, lanes = [], self.clock(), self.lanes
        fit, observed = lanes.owner.fit, lanes.owner.intake.observed
        for state, stats in found:
            states.append(self._since(state))
            if state.id in lanes.cluster.index:
                for ended in rows_since(stats, self._numbers.get(state.id, 0)):
                    known = ended.status == "ok" and ended.tokens > 0
                    if not self.joined.told(state.id, ended) and known:
                        observed.observe(None if ended.type == "__call__" else ended.type, ended.tokens)
                    if known:
                        fit.observe(state.id, ended.segment)
                self._numbers[state.id] = int(stats.get("number", 0))
        names = {state.id for state in states}
        for ride in [r for r in self.rides.values() if r.replica and r.replica not in names]:
            self._off(ride)
        self._numbers = {name: number for name, number in self._numbers.items() if name in names}
        self._adopt(lanes.owner.replicas_changed(states, now))
        self.joined.present(names, now)

    def tell(self, event: str, *what: Any) -> None:
        """Watchers hear of it; whatever they make of it, calls go on."""
        for watcher in self.watchers:
            try:
                getattr(watcher, event)(*what)
            except Exception as problem:
                self.counters.add("watching_failed", f"{event}: {problem!r}"[:300])

    def _accepted(self, ride: Ride, replica: str) -> None:
        place, now = self.lanes.cluster.index.get(replica), self.clock()
        state = ReplicaState(replica, self.model) if place is None else self.lanes.cluster.states[place]
        self.joined.routed(ride, state, now)
        self.tell("routed", ride, now)

    def _learn(self, ride: Ride, record: CallRecord) -> None:
        """What a call's answer says of lengths, and of what was predicted of it."""
        intake, call = ride.lane.intake, ride.call
        if record.status == "ok" and record.output_tokens > 0:
            if ride.prediction is not None:
                plain = intake.observed.expect(call.type)
                intake.trust.asked(call.id, ride.prediction, plain, call.max_tokens, call.type)
                intake.trust.ended(call.id, float(record.output_tokens))
            intake.observed.observe(call.type, record.output_tokens)
        try:
            self.on_record(ride, record)
        except Exception as problem:  # nobody who only looks on costs a call anything
            self.counters.add("watching_failed", f"record: {problem!r}"[:300])

    def _since(self, state: ReplicaState) -> ReplicaState:
        """A report without the calls of ours that have ended since it was made: Serve's reports are often half a
        second old when they come, as long as many a call."""
        at, here = state.reported_s, state.running + state.waiting
        if at is None or here == 0:
            return state
        gone = sum(name == state.id and began <= at < over for name, began, over in self._past)
        left = max(here - gone, 0)
        return replace(state, running=left, waiting=0, kv_tokens=state.kv_tokens * left // here)

    def _off(self, ride: Ride) -> None:
        """Its replica is gone. Serve asks again for it, or reports its end."""
        cluster = self.lanes.cluster
        if ride.replica in cluster.index:
            state = cluster.states[cluster.index[ride.replica]]
            cluster.report(replace(state, draining=True))
        routed_to = ride.replica if ride.routed else ""
        self.release(ride)
        ride.replica = routed_to

    # ---- bookkeeping ----

    @property
    def _at_once(self) -> Scheduler:
        return self.lanes.at_once if self.lanes.holds else self.lanes.owner

    def _adopt(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                ride = self.rides.get(self._ids.get(decision.call_id, -1))
                if ride is not None and not ride.routed:
                    ride.replica = decision.replica
                    if self.on_receipt is not None and decision.receipt is not None:
                        self.on_receipt(decision.receipt)

    def _named(self, call: Call) -> Call:
        """Under an id of its own, and with the first sight of its workflow."""
        began = min(self.began.get(call.workflow, call.workflow_start_s), call.workflow_start_s)
        self.began[call.workflow] = began
        if len(self.began) > WORKFLOWS:
            del self.began[next(iter(self.began))]
        name, times = call.id, 1
        while name in self._ids:
            times += 1
            name = f"{call.id}#{times}"
        return replace(call, id=name, workflow_arrival_s=began)

    def _gone(self, ride: Ride, asks: int) -> None:
        """A try ended without being accepted: if Serve has not asked again, nobody waits for it any longer."""
        if id(ride.pending) not in self.rides or ride.routed or ride.asks != asks:
            return
        if ride.pending.future.done():
            self.end(ride, "withdrawn")
        else:  # Serve waits for replicas before it asks again
            ride.pending.future.add_done_callback(
                lambda future: self.end(ride, "withdrawn") if future.cancelled() else None
            )

    def _sweep(self, now: float) -> None:
        if now - self._swept_s < UNHEARD_S / 4:
            return
        self._swept_s = now
        for ride in list(self.rides.values()):
            if not ride.routed and now - ride.began_s > UNHEARD_S and ride.pending.future.done():
                self.end(ride, "withdrawn")


def _is_of(decision: Decision, ride: Ride) -> bool:
    return getattr(decision, "call_id", None) == ride.call.id

"""The queue of one deployment, asked by all its handles: one scheduler, and a lease for each handle.

A handle that has calls here must be heard of every `lease_s`; one that is not is taken for dead, and what was granted
to it returns. A call leaves by its handle's word or by its replica's report, whichever comes first; the other changes
nothing. The report tells the output's length, so a call whose handle spoke first waits for it for `GRACE_S`.
No I/O here and no clock: `owner.py` puts it into an actor.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swarmx.adapters.ray_serve.messages import Answer, Ask, Done, Foretold, Held, Message, Report, Told
from swarmx.adapters.ray_serve.states import Ended, Stats
from swarmx.presets import preset
from swarmx.types import Call, CallRecord, Decision, Receipt, Reject, ReplicaState, Start, Status

GRACE_S = 0.1
WORKFLOWS = 50_000  # whose first sight is remembered


@dataclass(slots=True, eq=False)
class Place:
    """A call that is here. replica : "" while it waits; over_s : when its handle said that it is over"""

    call: Call
    key: str
    handle: str
    replica: str = ""
    over_s: float | None = None


@dataclass(slots=True, eq=False)
class Line:
    """One handle. wake : called when there is something to fetch; fresh : it has not been answered yet"""

    heard_s: float
    fresh: bool = True
    grants: list[tuple[str, str]] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)
    wake: Callable[[], None] | None = None


class Grants:
    """clock : seconds since the epoch; name, options : of the preset

    on_receipt : takes the receipt of each grant and refusal; None makes none
    """

    def __init__(
        self,
        clock: Callable[[], float],
        name: str = "late",
        options: dict[str, Any] | None = None,
        lease_s: float = 5.0,
        on_receipt: Callable[[Receipt], None] | None = None,
    ) -> None:
        self.clock, self.lease_s, self.on_receipt = clock, lease_s, on_receipt
        self.scheduler = preset(name, 0, **(options or {}))
        self.scheduler.receipts = on_receipt is not None
        self.lines: dict[str, Line] = {}
        self.places: dict[str, Place] = {}
        self.counts = dict.fromkeys(("asked", "granted", "refused", "ended", "returned", "rejected"), 0)
        self._keys: dict[str, deque[str]] = {}
        self._reporting: set[str] = set()  # replicas that speak for themselves
        self._began: OrderedDict[str, float] = OrderedDict()

    # ---- handles ----

    def told(self, told: Told) -> None:
        """Take a handle's messages."""
        line = self._line(told.handle)
        if told.states is not None:
            self._set_replicas(told.states)
        if told.live is not None:
            for call_id in line.calls - told.live:
                self._end(self.places[call_id], "cancelled", 0)
        for message in told.messages:
            self._take(told.handle, line, message)

    def fetch(self, handle: str) -> Answer:
        """What was granted to the handle since it last asked."""
        line = self._line(handle)
        answer = Answer(line.fresh, tuple(line.grants))
        line.grants, line.fresh = [], False
        return answer

    def _line(self, handle: str) -> Line:
        line = self.lines.setdefault(handle, Line(self.clock()))
        line.heard_s = self.clock()
        return line

    def _take(self, handle: str, line: Line, message: Message) -> None:
        place = self.places.get(message.call_id if isinstance(message, Done | Foretold) else message.call.id)
        if place is not None and place.handle != handle:
            if isinstance(message, Ask | Held):  # two handles use one id
                line.grants.append((message.call.id, ""))
        elif isinstance(message, Foretold):
            if place is not None and not place.replica:
                self._carry_out(self.scheduler.predicted(place.call.id, message.prediction, self.clock()))
        elif isinstance(message, Done):
            if place is not None:
                self._done(place)
        elif place is None:
            self._add(handle, line, message)
        elif isinstance(message, Held):
            self._held(place, message.replica, ())
        else:
            self._asked_again(line, place, message)

    def _asked_again(self, line: Line, place: Place, ask: Ask) -> None:
        place.over_s = None
        if ask.refused_by:
            self._refused(place, ask.refused_by)
        elif place.replica:  # the grant was lost on its way
            line.grants.append((place.call.id, place.replica))

    def _done(self, place: Place) -> None:
        if not place.replica or place.replica not in self._reporting:
            self._end(place, "cancelled", 0)
        elif place.over_s is None:
            place.over_s = self.clock()

    def _add(self, handle: str, line: Line, message: Ask | Held) -> None:
        call = self._dated(message.call)
        place = self.places[call.id] = Place(call, message.key, handle)
        line.calls.add(call.id)
        self.counts["asked"] += 1
        decisions = self.scheduler.arrive(call, message.prediction, self.clock())
        if isinstance(message, Held):
            self._held(place, message.replica, decisions)
        else:
            self._carry_out(decisions)

    def _held(self, place: Place, replica: str, decisions: Sequence[Decision]) -> None:
        """It runs already: whatever was decided for it, the book says where."""
        self.scheduler.placed(place.call.id, replica, self.clock())
        self._carry_out([d for d in decisions if getattr(d, "call_id", "") != place.call.id])
        flight = self.scheduler.cluster.flights.get(place.call.id)
        if flight is None:  # no such replica any more
            self._end(place, "cancelled", 0)
        else:
            self._unbound(place)
            self._bound(place, flight.replica)

    def _refused(self, place: Place, replica: str) -> None:
        if place.replica != replica:
            return
        self.counts["refused"] += 1
        self._unbound(place)
        cluster = self.scheduler.cluster
        known = cluster.index.get(replica)
        state = ReplicaState(replica, place.call.model) if known is None else cluster.states[known]
        self._carry_out(self.scheduler.refused(place.call.id, state, self.clock()))

    def _dated(self, call: Call) -> Call:
        """With the first sight of its workflow, whichever handle had it."""
        began = call.workflow_start_s
        if call.workflow in self._began:
            began = min(began, self._began[call.workflow])
        self._began[call.workflow] = began
        if len(self._began) > WORKFLOWS:
            self._began.popitem(last=False)
        return call if began == call.workflow_start_s else replace(call, workflow_arrival_s=began)

    # ---- replicas ----

    def report(self, report: Report) -> None:
        """A replica speaks for itself."""
        self._reporting.add(report.replica)
        cluster, now = self.scheduler.cluster, self.clock()
        for key in report.first_tokens:
            if (call_id := self._find(key, report.replica)) is not None:
                self._carry_out(self.scheduler.started(call_id, now))
        if report.replica in cluster.index:
            cluster.report(_loaded(cluster.states[cluster.index[report.replica]], report.stats))
        for ended in report.ended:
            self._ended(report.replica, ended)

    def _ended(self, replica: str, ended: Ended) -> None:
        call_id = self._find(ended.key, replica)
        if call_id is None:  # bound elsewhere, or its handle's word came much earlier: only its length is news
            if ended.status == "ok" and ended.tokens > 0:
                self.scheduler.intake.observed.observe(ended.type, ended.tokens)
            return
        known = ended.status == "ok" and ended.tokens > 0
        self._end(self.places[call_id], "ok" if known else "cancelled", ended.tokens)

    def _find(self, key: str, replica: str) -> str | None:
        """The longest-running call of that key there: calls that share a key have the same prompt."""
        return next((c for c in self._keys.get(key, ()) if self.places[c].replica == replica), None)

    def _set_replicas(self, states: Sequence[ReplicaState]) -> None:
        """The replicas as a handle sees them; calls on those that are gone are their handles' to ask again or end."""
        now, cluster = self.clock(), self.scheduler.cluster
        names = {state.id for state in states}
        for state in [s for s in cluster.states if s.id not in names]:
            cluster.report(replace(state, draining=True))  # nothing may be bound there while its calls are taken off
            self._reporting.discard(state.id)
        for place in [p for p in self.places.values() if p.replica and p.replica not in names]:
            self._end(place, "cancelled", 0)
        unreported = [replace(s, reported_s=None) for s in states]  # what is known of their load is newer
        self._carry_out(self.scheduler.replicas_changed(unreported, now))

    # ---- time ----

    def tick(self) -> None:
        """Time has passed; call it every `scheduler.tick_s` seconds."""
        now = self.clock()
        for place in [p for p in self.places.values() if p.over_s is not None and now - p.over_s >= GRACE_S]:
            self._end(place, "cancelled", 0)
        for handle in [h for h, line in self.lines.items() if now - line.heard_s > self.lease_s]:
            self._drop(handle)
        self._carry_out(self.scheduler.tick(now))

    def _drop(self, handle: str) -> None:
        """A handle is taken for dead: its calls leave the queue, its grants return."""
        for call_id in list(self.lines[handle].calls):
            self.counts["returned"] += 1
            self._end(self.places[call_id], "cancelled", 0)
        del self.lines[handle]

    # ---- decisions ----

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if not isinstance(decision, Start | Reject) or (place := self.places.get(decision.call_id)) is None:
                continue
            line = self.lines[place.handle]
            if self.on_receipt is not None and decision.receipt is not None:
                self.on_receipt(decision.receipt)
            if isinstance(decision, Start):
                self._bound(place, decision.replica)
                self.counts["granted"] += 1
                line.grants.append((place.call.id, decision.replica))
            else:
                self.counts["rejected"] += 1
                line.grants.append((place.call.id, ""))
                self._forget(place)
            if line.wake is not None:
                line.wake()

    def _bound(self, place: Place, replica: str) -> None:
        place.replica = replica
        self._keys.setdefault(place.key, deque()).append(place.call.id)

    def _unbound(self, place: Place) -> None:
        if place.replica:
            place.replica = ""
            same = self._keys[place.key]
            same.remove(place.call.id)
            if not same:
                del self._keys[place.key]

    def _forget(self, place: Place) -> None:
        self._unbound(place)
        del self.places[place.call.id]
        if (line := self.lines.get(place.handle)) is not None:
            line.calls.discard(place.call.id)

    def _end(self, place: Place, status: Status, tokens: int) -> None:
        call, now, replica = place.call, self.clock(), place.replica
        self.counts["ended"] += 1
        self._forget(place)
        record = CallRecord(
            call.id, call.model, call.arrival_s, status, workflow_id=call.workflow_id, type=call.type,
            tenant=call.tenant, priority=call.priority, prompt_tokens=call.prompt_tokens, replica=replica or None,
            finished_s=now, output_tokens=tokens, policy=self.scheduler.name,
        )  # fmt: skip
        self._carry_out(self.scheduler.finished(record, now))


def _loaded(state: ReplicaState, stats: Stats) -> ReplicaState:
    """The replica with the load that it reports."""
    if "at_s" not in stats:
        return state
    running, waiting, kv = (int(stats.get(name, 0)) for name in ("running", "waiting", "kv_tokens"))
    return replace(state, running=running, waiting=waiting, kv_tokens=kv, reported_s=float(stats["at_s"]))

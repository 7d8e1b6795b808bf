"""One router of several in front of a pool: they tell each other their heads, and offer each other what gets free.

Every router has a queue and a book of its own. Left alone, each starts its own head where its own call has just ended,
though another router's head is more urgent: as many queues, as many orders, and that costs far more than what nobody
can see of the others between two reports. So a router that hears of a free place offers it to the router whose head,
as last told, is the most urgent. That one starts there what it wants to, or offers it to the next; each has one turn.

Nothing is locked. An offer reserves nothing: who made it takes the place for taken until the replica's next report,
everybody else sees what it sees, and a replica that is taken refuses. One place causes at most as many offers as there
are routers, and where one of them is lost or leads to nothing the place stands idle until the next report at most, so
reports there must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from swarmx.ordering import LaneOrder
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Offer, Prediction, ReplicaState, Start
from swarmx.waiting import Key

DUE = -1  # the class of calls that are due, above all others


@dataclass
class Shard:
    """A scheduler that knows its peers; it is told and answers as a `Scheduler` is.

    me : its name among the routers of the pool
    most_old_s : a head that was told longer ago does not count: more than the period of telling, and so long at most
        places are offered to a router that is gone
    Raises ValueError for an order whose keys mean nothing elsewhere (`swarmx.ordering.LaneOrder`).
    """

    scheduler: Scheduler
    me: str
    most_old_s: float = 3.0
    _heads: dict[str, tuple[Key, float]] = field(default_factory=dict)  # router -> its head, and when it was told

    def __post_init__(self) -> None:
        if isinstance(self.scheduler.parts.order, LaneOrder):
            raise ValueError(f"routers cannot compare keys of {type(self.scheduler.parts.order).__name__}")

    @property
    def tick_s(self) -> float:
        """Wanted period of `tick`."""
        return self.scheduler.tick_s

    # ---- between routers ----

    def head(self, now: float) -> Key | None:
        """Key of the most urgent waiting call, to be told to all peers every second or so; None when none waits."""
        scheduler = self.scheduler
        queue, aging, shut_out = scheduler.queue, scheduler.aging, scheduler.observers.shut_out
        due = [] if aging is None else aging.split(queue, shut_out, scheduler.mean_service_s, now)[0]
        if due:
            return DUE, now if due[0].due_s is None else due[0].due_s, due[0].call.arrival_s, due[0].call.id
        return queue.slice(0, 1)[0].key if len(queue) else None

    def heard(self, router: str, head: Key | None, now: float) -> None:
        """What a peer's head is."""
        if head is None:
            self._heads.pop(router, None)
        else:
            self._heads[router] = head, now

    def offered(self, offer: Offer, now: float) -> list[Decision]:
        """A peer leaves a free place to us: what we start, and the next offer where nothing of that is there."""
        self.heard(offer.sender, offer.head, now)
        scheduler, state = self.scheduler, offer.replica
        if state.id not in scheduler.cluster.index:
            return self._pass_on(state, offer.asked, now)
        scheduler.cluster.report(state)
        decisions = scheduler.tick(now)
        return decisions if _starts(decisions, state) else decisions + self._pass_on(state, offer.asked, now)

    def finished(
        self, record: CallRecord, now: float, retry: bool = False, state: ReplicaState | None = None
    ) -> list[Decision]:
        """A call ended. With the state of its replica a more urgent peer gets the place; else it is as ever."""
        if state is None or record.status != "ok" or not _has_room(state):
            return self.scheduler.finished(record, now, retry, state)
        if (peer := self._most_urgent((), self.head(now), now)) is not None:
            decisions = self.scheduler.finished(record, now, retry, _taken(state))
            return [*decisions, self._offer(state, peer, (), now)]
        decisions = self.scheduler.finished(record, now, retry, state)
        return decisions if _starts(decisions, state) else decisions + self._pass_on(state, (), now)

    def _pass_on(self, state: ReplicaState, asked: tuple[str, ...], now: float) -> list[Decision]:
        """We want nothing there: the offer to the next peer who may, if any is left."""
        asked = *asked, self.me
        if (peer := self._most_urgent(asked, None, now)) is None:
            return []
        if state.id in self.scheduler.cluster.index:
            self.scheduler.cluster.report(_taken(state))
        return [self._offer(state, peer, asked, now)]

    def _most_urgent(self, asked: Sequence[str], than: Key | None, now: float) -> str | None:
        """The peer with the most urgent head that is known, has not been asked, and comes before `than`."""
        known = [
            (head, router)
            for router, (head, told_s) in self._heads.items()
            if router not in asked and now - told_s <= self.most_old_s and (than is None or head < than)
        ]
        return min(known)[1] if known else None

    def _offer(self, state: ReplicaState, peer: str, asked: tuple[str, ...], now: float) -> Offer:
        del self._heads[peer]  # its head will have started; what comes after that it has to tell
        return Offer(state, peer, self.me, self.head(now), asked)

    # ---- as a scheduler ----

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> list[Decision]:
        return self.scheduler.arrive(call, prediction, now)

    def predicted(self, call_id: str, prediction: Prediction, now: float) -> list[Decision]:
        return self.scheduler.predicted(call_id, prediction, now)

    def started(self, call_id: str, now: float) -> list[Decision]:
        return self.scheduler.started(call_id, now)

    def progress(self, call_id: str, tokens: float, now: float) -> list[Decision]:
        return self.scheduler.progress(call_id, tokens, now)

    def refused(self, call_id: str, state: ReplicaState, now: float) -> list[Decision]:
        return self.scheduler.refused(call_id, state, now)

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> list[Decision]:
        return self.scheduler.replicas_changed(states, now)

    def tick(self, now: float) -> list[Decision]:
        return self.scheduler.tick(now)


def _has_room(state: ReplicaState) -> bool:
    return state.running + state.waiting < state.slots and not (state.draining or state.breaker_open)


def _taken(state: ReplicaState) -> ReplicaState:
    """The same with one place less."""
    return replace(state, running=state.running + 1)


def _starts(decisions: Sequence[Decision], state: ReplicaState) -> bool:
    return any(isinstance(d, Start) and d.replica == state.id for d in decisions)

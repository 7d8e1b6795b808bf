"""A handle's side of the queue owner: few messages, never more than one telling and one waiting at a time.

While a message is on its way, what comes up meanwhile goes with the next. An owner that fails or does not answer in
time counts as away: calls that wait for it are bound by the handle, and from then on all are, until it answers again;
then it is told everything that the handle has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from swarmx.adapters.ray_serve.counters import Counters
from swarmx.adapters.ray_serve.messages import Answer, Ask, Done, Foretold, Held, Message, Told
from swarmx.types import Call, Prediction, ReplicaState

WAIT_S = 1.0  # a waiting message is answered at the latest after this
RETRY_S = 0.5
STARTING_S = 60.0  # a new actor may take this long to answer
UNWANTED_S = 30.0  # without calls, an owner that is away is not looked for any longer


class Rider(Protocol):
    """What is told of a call. replica : "" while it waits to be bound"""

    call: Call
    prediction: Prediction | None
    key: str
    replica: str


class Link:
    """connect : finds or makes the owner, may block; states, riders : what the handle has now

    Everything but `connect` runs on the event loop of the router.
    """

    def __init__(
        self,
        handle: str,
        connect: Callable[[], Any],
        states: Callable[[], tuple[ReplicaState, ...]],
        riders: Callable[[], Iterable[Rider]],
        counters: Counters,
        lease_s: float,
        answer_s: float,
    ) -> None:
        self.handle, self.connect, self.states, self.riders = handle, connect, states, riders
        self.counters, self.lease_s, self.answer_s = counters, lease_s, answer_s
        self.is_up = False
        self.round_trips_s: list[float] = []  # of the latest tellings, for measuring
        self._owner: Any = None
        self._outbox: list[Message] = []
        self._grants: dict[str, asyncio.Future[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted_s = self._told_s = 0.0
        self._states_told = False
        self._shape: tuple[ReplicaState, ...] = ()

    # ---- what the router asks ----

    def open(self) -> None:
        """Look for the owner, in the background; returns at once."""
        self._wanted_s = time.monotonic()
        if not self.is_up:
            self._spawn("return", self._return)

    async def grant(self, rider: Rider, refused_by: str | None) -> str:
        """The replica that the owner binds the call to; "" when the handle shall bind it itself."""
        self.open()
        if not self.is_up:
            return ""
        call_id = rider.call.id
        future = self._grants[call_id] = asyncio.get_running_loop().create_future()
        self._say(Ask(rider.call, rider.prediction, rider.key, refused_by))
        self._spawn("keep", self._keep)
        try:
            replica: str = await future
            return replica
        finally:
            self._grants.pop(call_id, None)

    def held(self, rider: Rider) -> None:
        """The handle has bound a call itself."""
        if self.is_up:
            self._say(Held(rider.call, rider.prediction, rider.key, rider.replica))
            self._spawn("keep", self._keep)

    def foretold(self, call_id: str, prediction: Prediction) -> None:
        """A call that waits for its grant has its prediction now."""
        if self.is_up and call_id in self._grants:
            self._say(Foretold(call_id, prediction))

    def done(self, call_id: str) -> None:
        """A call is over, or given up."""
        if self.is_up:
            self._say(Done(call_id))

    def replicas_changed(self) -> None:
        """The owner hears of new, gone and changed replicas from here; of their load from the replicas themselves."""
        shape = tuple(replace(s, running=0, waiting=0, kv_tokens=0, reported_s=None) for s in self.states())
        if shape == self._shape:
            return
        self._shape, self._states_told = shape, False
        if self.is_up and self._grants:
            self._spawn("tell", self._tell)

    # ---- telling ----

    def _say(self, message: Message) -> None:
        self._outbox.append(message)
        self._spawn("tell", self._tell)

    async def _tell(self) -> None:
        while self.is_up and (self._outbox or not self._states_told):
            messages, self._outbox = tuple(self._outbox), []
            await self._exchange(messages, None)

    async def _exchange(self, messages: tuple[Message, ...], live: frozenset[str] | None) -> None:
        states = None if self._states_told else self.states()
        self._states_told = True
        begun = self._told_s = time.monotonic()
        told = Told(self.handle, messages, states, live)
        answer = await self._asked(lambda: self._owner.tell.remote(told), self.answer_s)
        if answer is not None:
            self.round_trips_s.append(time.monotonic() - begun)
            del self.round_trips_s[:-1000]
            self._deliver(answer)

    async def _wait(self) -> None:
        while self.is_up and self._grants:
            answer = await self._asked(lambda: self._owner.wait.remote(self.handle, WAIT_S), WAIT_S + self.answer_s)
            if answer is not None:
                self._deliver(answer)

    async def _keep(self) -> None:
        """The lease: as long as there are calls, say something every third of it."""
        while self.is_up and any(True for _ in self.riders()):
            await asyncio.sleep(self.lease_s / 3)
            if self.is_up and time.monotonic() - self._told_s >= self.lease_s / 3:
                await self._exchange((), None)

    def _deliver(self, answer: Answer) -> None:
        if answer.forgotten:
            self._states_told = False
            self._outbox = [*self._everything(), *(m for m in self._outbox if isinstance(m, Done))]
            self._spawn("tell", self._tell)
        for call_id, replica in answer.grants:
            future = self._grants.get(call_id)
            if future is not None and not future.done():
                self.counters.add("owner_grants")
                future.set_result(replica)
        if self._grants:
            self._spawn("wait", self._wait)

    def _everything(self) -> list[Message]:
        return [
            Held(r.call, r.prediction, r.key, r.replica) if r.replica else Ask(r.call, r.prediction, r.key)
            for r in self.riders()
            if r.replica or r.call.id in self._grants
        ]

    # ---- away and back ----

    async def _asked(self, ask: Callable[[], Any], within_s: float) -> Answer | None:
        try:
            answer: Answer = await asyncio.wait_for(_awaited(ask()), within_s)
            return answer
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # of whatever kind: the owner is no use now
            self._lost(f"{type(problem).__name__} {problem}"[:200])
            return None

    def _lost(self, why: str) -> None:
        if self.is_up:
            self.is_up = False
            self.counters.add("owner_away", why)
        self._outbox.clear()
        for future in self._grants.values():
            if not future.done():
                future.set_result("")
        self._spawn("return", self._return)

    async def _return(self) -> None:
        while not self.is_up and time.monotonic() - self._wanted_s < UNWANTED_S:
            try:
                self._owner = await asyncio.to_thread(self.connect)
                live = frozenset(r.call.id for r in self.riders())
                told = Told(self.handle, tuple(self._everything()), self.states(), live)
                answer = await asyncio.wait_for(_awaited(self._owner.tell.remote(told)), STARTING_S)
            except asyncio.CancelledError:
                raise
            except Exception:  # still away
                await asyncio.sleep(RETRY_S)
                continue
            self.is_up = self._states_told = True
            self._told_s = time.monotonic()
            self.counters.add("owner_back")
            self._outbox = [*self._everything(), *self._ended_since(live)]
            self._spawn("tell", self._tell)
            self._spawn("keep", self._keep)
            self._deliver(Answer(False, answer.grants))

    def _ended_since(self, live: frozenset[str]) -> list[Message]:
        return [Done(call_id) for call_id in live - {r.call.id for r in self.riders()}]

    def _spawn(self, name: str, work: Callable[[], Any]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.get_running_loop().create_task(work())


async def _awaited(reference: Any) -> Any:
    return await reference

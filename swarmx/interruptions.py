"""Carrying out preemption and migration on the scheduler's own records: book, queue, discipline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from swarmx import kernel
from swarmx.explain import rejection_of
from swarmx.migration import Migration, Shift, Stealing
from swarmx.observers import Observers
from swarmx.preemption import Place, Preemption, Running, Wanting
from swarmx.quantiles import LEVELS, QuantileGrid, condition_on_age, tail_excess
from swarmx.state import ClusterState
from swarmx.types import Decision, Move, Preempt, Start
from swarmx.waiting import Lengths, Waiting, WaitingQueue

STALE_S = 5.0  # an older report says nothing about what is free


@dataclass
class Interruptions:
    """Calls off their replicas.

    bound : calls in flight, the scheduler's own; stale_s : age at which a replica's report counts as unknown
    """

    queue: WaitingQueue
    cluster: ClusterState
    bound: dict[str, Waiting]
    observers: Observers
    preemption: Preemption | None = None
    migration: Migration | None = None
    stealing: Stealing | None = None
    stale_s: float = STALE_S

    def __post_init__(self) -> None:
        self._idle_since: dict[str, float] = {}

    def displace(self, now: float, start: Callable[[Waiting, int, float], Start]) -> Iterator[Decision]:
        """Preempt for waiting calls, and start those in the places that become free."""
        rules = self.preemption
        if rules is None or not len(self.queue) or not self.cluster.is_fitted:
            return
        self.cluster.refresh(now)
        wanting = [self._wanting(waiting, now) for waiting in islice(self.queue, rules.look)]
        for one in list(rules.decide(wanting, self.running(now), self.places(now), now)):
            for victim in one.victims:
                yield self.take_off(victim, one.reason, now, rules.costs.resume != "cancel")
            waiting = self.queue.get(one.call_id)
            assert waiting is not None
            yield start(waiting, one.replica, now)

    def take_off(self, call_id: str, reason: str, now: float, keeps: bool, avoid_s: float = 0.0) -> Preempt:
        """Put a running call back into the queue, with its key, its place in the starvation tier, and one interruption
        more.

        keeps : its text is kept, and becomes part of its prompt; avoid_s : it does not return there for so long
        """
        waiting, flight = self.bound.pop(call_id), self.cluster.flights[call_id]
        age = self._age(call_id, now)
        self.cluster.remove(call_id, now)
        self.observers.interrupted(waiting, waiting.attained + age, now)
        waiting.interrupted += 1
        self._continue(waiting, age if keeps else 0.0)
        if avoid_s:
            waiting.refused[flight.replica] = now + avoid_s
        self.queue.add(waiting)
        return Preempt(call_id, flight.replica, reason, keeps)

    def reap(self, policy: str, avoid_s: float, now: float) -> list[Decision]:
        """Running calls that are stuck: sent again, elsewhere if there is anywhere else, or given up."""
        rules, decisions = self.observers.gate.rules, list[Decision]()
        for call_id in self.observers.gate.stalled(now):
            waiting, reason = self.bound[call_id], f"no progress for {rules.stall_s:g} s"
            decisions.append(self.take_off(call_id, reason, now, keeps=False, avoid_s=avoid_s))
            if waiting.attempts > rules.retries:
                self.queue.remove(waiting)
                self.observers.refused(waiting, now)
                reason = f"{reason}, {waiting.attempts} times"
                decisions.append(rejection_of(waiting, policy, reason, None, now))
        return decisions

    def shift(self, now: float, rng: np.random.Generator) -> Iterator[Decision]:
        """Moves that migration and stealing want now."""
        if self.migration is None and self.stealing is None:
            return
        self.cluster.refresh(now)
        running, places = self.running(now), self.places(now)
        decoding = {c for c, f in self.cluster.flights.items() if f.decoding or not f.queued}
        if self.migration is not None:
            capacity = self.cluster.replicas[kernel.KV_CAPACITY].tolist()
            moving = [r for r in running if r.call_id in decoding]
            yield from [self._move(s, now, True) for s in self.migration.decide(moving, places, capacity, now)]
        if self.stealing is not None:
            idle = self._idle(places, now)
            queued = [r for r in running if r.call_id not in decoding]
            yield from [self._move(s, now, False) for s in self.stealing.decide(queued, places, idle, now, rng)]

    def running(self, now: float) -> list[Running]:
        """What is in flight, as preemption and migration see it."""
        rows = self.cluster.flight_table()
        out = []
        for call_id, flight in self.cluster.flights.items():
            waiting, row = self.bound.get(call_id), rows[flight.row]
            if waiting is not None:
                out.append(
                    Running(
                        call_id, int(row[kernel.F_REPLICA]), waiting.call.tenant, waiting.level, waiting.key,
                        float(row[kernel.F_PROMPT]), self._age(call_id, now), float(row[kernel.F_REST]),
                        float(row[kernel.F_NEED]), waiting.interrupted, flight.started_s,
                    )
                )  # fmt: skip
        return out

    def places(self, now: float) -> list[Place]:
        table = self.cluster.replicas
        room = table[kernel.KV_CAPACITY] - table[kernel.KV]
        longest = np.minimum(table[kernel.CONTEXT], table[kernel.KV_CAPACITY])
        return [
            Place(
                int(table[kernel.SLOTS, i]), int(table[kernel.N, i]), float(room[i]), float(longest[i]),
                float(table[kernel.TAU, i]), float(table[kernel.P, i]), table[kernel.USABLE, i] > 0,
                state.reported_s is None or now - state.reported_s <= self.stale_s,
            )
            for i, state in enumerate(self.cluster.states)
        ]  # fmt: skip

    def _wanting(self, waiting: Waiting, now: float) -> Wanting:
        call, index = waiting.call, self.cluster.index
        refused = frozenset(index[r] for r, until in waiting.refused.items() if until > now and r in index)
        need = call.prompt_tokens + waiting.lengths.mean / 2
        level, since_s, due_s = waiting.level, waiting.since_s, waiting.due_s
        return Wanting(call.id, call.tenant, level, waiting.key, call.prompt_tokens, need, since_s, due_s, refused)

    def _age(self, call_id: str, now: float) -> float:
        """Tokens that it has produced in this attempt, extrapolated from its last report."""
        row = self.cluster.flight_table()[self.cluster.flights[call_id].row]
        tau = self.cluster.replicas[kernel.TAU, int(row[kernel.F_REPLICA])]
        more = (now - row[kernel.F_AGE_AT]) / tau if row[kernel.F_DECODING] > 0 and tau > 0 else 0.0
        return float(row[kernel.F_AGE] + max(more, 0.0))

    def _continue(self, waiting: Waiting, age: float) -> None:
        """What is left of an interrupted call: its text so far is prompt, its length is conditioned on it."""
        whole = int(age)
        if whole < 1:
            return
        waiting.attained += whole
        waiting.call = replace(waiting.call, prompt_tokens=waiting.call.prompt_tokens + whole)
        grid = condition_on_age(QuantileGrid(LEVELS, waiting.lengths.grid), float(whole))
        values = np.maximum(grid.values, 1.0)
        left = QuantileGrid(LEVELS, values)
        mean = float(left.mean())
        own = max(waiting.lengths.own - whole, mean)
        waiting.lengths = Lengths(mean, own, values, float(tail_excess(left)))

    def _move(self, shift: Shift, now: float, running: bool) -> Move:
        waiting, flight = self.bound[shift.call_id], self.cluster.flights[shift.call_id]
        age = self._age(shift.call_id, now)
        self.cluster.remove(shift.call_id, now)
        if running:
            waiting.interrupted += 1
            self._continue(waiting, age)
        self.cluster.start(waiting.call, waiting.lengths, shift.target, now)
        target = self.cluster.states[shift.target].id
        return Move(shift.call_id, flight.replica, target, shift.reason, shift.stall_s, running)

    def _idle(self, places: list[Place], now: float) -> list[float | None]:
        """Since when each replica has had nothing to do."""
        names = [state.id for state in self.cluster.states]
        busy = {name for name, place in zip(names, places, strict=True) if place.running}
        self._idle_since = {name: self._idle_since.get(name, now) for name in names if name not in busy}
        return [self._idle_since.get(name) for name in names]

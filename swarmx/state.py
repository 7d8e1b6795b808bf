"""The one mutable record: which replicas there are, and what is in flight on each.

The book of a replica holds the calls that we sent there, from their start until they ended in any way or were refused.
There is no split into sent and running: calls of other senders are the difference between what the replica reports and
what our book said at that time. Replicas and flights live in packed arrays (see `swarmx.kernel`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.engine import OnlineFit, Segment
from swarmx.quantiles import LEVELS
from swarmx.types import ReplicaState

Array = NDArray[np.float64]
MIN_SEGMENT_TOKENS = 16  # shorter stretches between two progress reports are not worth fitting


@dataclass(slots=True)
class Flight:
    """What the book remembers of one call in flight; its numbers for the kernels are in row `row`."""

    call_id: str
    replica: str
    row: int
    started_s: float
    prompt: float
    uncached: float
    need: float
    queued: bool  # the replica had no free slot when the call was sent
    decoding: bool = False
    seen_s: float = 0.0  # last observation, and the replica's integrals at that time
    seen_tokens: float = 0.0
    seen_integrals: tuple[float, float, float] = (0.0, 0.0, 0.0)


class ClusterState:
    """Replicas of one model pool and the calls in flight on them."""

    def __init__(self, fit: OnlineFit) -> None:
        self.fit = fit
        self.states: list[ReplicaState] = []
        self.index: dict[str, int] = {}
        self.flights: dict[str, Flight] = {}
        self.replicas: Array = np.zeros((kernel.REPLICA_ROWS, 0))
        self._rows: Array = np.zeros((64, kernel.FLIGHT_COLUMNS + LEVELS.size))
        self._ids: list[str] = []
        self._on: list[set[str]] = []
        self._integrals: list[list[float]] = []  # per replica: last time, batch, kv, prefilled
        self._kv_book: list[float] = []
        self._fits_seen = -1
        self._mean_speed = 1.0
        self.starts = 0

    # ---- replicas -------------------------------------------------------------------------------------------------

    def set_replicas(self, states: Sequence[ReplicaState], now: float) -> list[str]:
        """Replace the set of replicas, keeping the flights of those that stay. Returns ids of calls whose replica is gone."""
        old, old_index = self.replicas, self.index
        old_on, old_integrals, old_kv = self._on, self._integrals, self._kv_book
        self.states = list(states)
        self.index = {state.id: i for i, state in enumerate(self.states)}
        if len(self.index) != len(self.states):
            raise ValueError(f"replica ids must differ, got {[s.id for s in states]}")
        lost = [call for name, i in old_index.items() if name not in self.index for call in old_on[i]]
        for call in lost:
            self.remove(call, now)
        for name in old_index:
            if name not in self.index:
                self.fit.forget(name)
        self.replicas = np.zeros((kernel.REPLICA_ROWS, len(self.states)))
        self._on, self._integrals, self._kv_book = [], [], []
        self._mean_speed = float(np.mean([s.speed for s in self.states])) if self.states else 1.0
        for i, state in enumerate(self.states):
            if (j := old_index.get(state.id)) is not None:
                self.replicas[:, i] = old[:, j]
            self._on.append(old_on[j] if j is not None else set())
            self._integrals.append(old_integrals[j] if j is not None else [now, 0.0, 0.0, 0.0])
            self._kv_book.append(old_kv[j] if j is not None else 0.0)
            for call in self._on[i]:
                self._rows[self.flights[call].row, kernel.F_REPLICA] = i
            self.fit.place(state.id, state.device)
            self._adopt(i, state)
        self._fits_seen = -1
        self.sync_constants()
        return lost

    def report(self, state: ReplicaState) -> None:
        """Adopt a fresh report of one known replica."""
        i = self.index[state.id]
        self.states[i] = state
        self._adopt(i, state)

    def _adopt(self, i: int, state: ReplicaState) -> None:
        table = self.replicas
        table[kernel.SLOTS, i] = state.slots
        table[kernel.CONTEXT, i] = state.context_tokens
        table[kernel.KV_CAPACITY, i] = state.kv_capacity_tokens
        table[kernel.USABLE, i] = float(not state.draining and not state.breaker_open)
        if state.reported_s is None:
            return
        before = [f for f in map(self.flights.__getitem__, self._on[i]) if f.started_s <= state.reported_s]
        since = [f for f in map(self.flights.__getitem__, self._on[i]) if f.started_s > state.reported_s]
        others = max(0, state.running + state.waiting - len(before))
        share = others / max(1, state.running + state.waiting)
        table[kernel.OTHER, i] = others
        table[kernel.OTHER_KV, i] = share * state.kv_tokens
        table[kernel.REPORTED_KV, i] = state.kv_tokens
        table[kernel.SENT_SINCE_KV, i] = sum(f.need for f in since)

    def sync_constants(self) -> None:
        """Copy the fit into the replica table where any constants changed."""
        if self.fit.refits == self._fits_seen:
            return
        self._fits_seen = self.fit.refits
        for i in range(len(self.states)):
            self._sync_replica(i)

    def _sync_replica(self, i: int) -> None:
        state = self.states[i]
        constants, own = self.fit.constants_of(state.device)
        if constants is None:
            return
        speed = self.fit.speed(state.id) * (1.0 if own else state.speed / self._mean_speed)
        for row, value in zip((kernel.A, kernel.B, kernel.C, kernel.P), constants.as_tuple(), strict=True):
            self.replicas[row, i] = value / speed

    @property
    def is_fitted(self) -> bool:
        """Whether every replica has constants; until then seconds cannot be compared."""
        return bool(self.states) and bool(np.all(self.replicas[kernel.A] + self.replicas[kernel.B] > 0))

    def configured_speeds(self) -> Array:
        """(R,) relative speeds as configured."""
        return np.array([s.speed for s in self.states])

    # ---- flights --------------------------------------------------------------------------------------------------

    def start(
        self,
        call_id: str,
        i: int,
        mean: float,
        grid: Array,
        excess: float,
        prompt: float,
        uncached: float,
        now: float,
    ) -> None:
        """Enter a call into the book of replica i.

        grid : (K,) output-token quantiles; prompt : KV tokens it will hold beyond blocks that others hold already;
        uncached : prompt tokens to prefill
        """
        row = len(self._ids)
        if row == self._rows.shape[0]:
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._advance(i, now)
        table = self.replicas
        queued = table[kernel.MINE, i] + table[kernel.OTHER, i] >= table[kernel.SLOTS, i]
        need = prompt + mean / 2
        flight = Flight(call_id, self.states[i].id, row, now, prompt, uncached, need, bool(queued))
        flight.seen_s, flight.seen_integrals = now, self._integral(i)
        self.flights[call_id] = flight
        self._ids.append(call_id)
        self._on[i].add(call_id)
        stall = max(now, table[kernel.STALL_UNTIL, i]) + table[kernel.P, i] * uncached
        self._rows[row, : kernel.FLIGHT_COLUMNS] = (
            i,
            mean,
            prompt,
            0.0,
            stall,
            float(not queued),
            excess,
            need,
            mean,
        )
        self._rows[row, kernel.FLIGHT_COLUMNS :] = grid
        table[kernel.MINE, i] += 1
        table[kernel.AWAITING, i] += 1
        table[kernel.STALL_UNTIL, i] = stall
        table[kernel.N, i] += 1
        table[kernel.KV, i] += need
        table[kernel.REMAINING, i] += mean
        self._kv_book[i] += need
        self.starts += 1

    def first_token(self, call_id: str, now: float) -> None:
        """The call's prefill is done and it decodes."""
        flight = self.flights.get(call_id)
        if flight is None or flight.decoding:
            return
        i = self.index[flight.replica]
        self._advance(i, now)
        self._integrals[i][3] += flight.uncached
        if not flight.queued:
            self._learn(flight, i, 0.0, now)
        self._begin_decoding(flight, i, now)

    def _begin_decoding(self, flight: Flight, i: int, now: float) -> None:
        flight.decoding = True
        flight.seen_s, flight.seen_tokens, flight.seen_integrals = now, 0.0, self._integral(i)
        row = self._rows[flight.row]
        row[kernel.F_AGE], row[kernel.F_AGE_AT], row[kernel.F_DECODING] = 0.0, now, 1.0
        table = self.replicas
        table[kernel.AWAITING, i] -= 1
        if table[kernel.AWAITING, i] == 0:
            table[kernel.STALL_UNTIL, i] = now

    def progress(self, call_id: str, tokens: float, now: float) -> None:
        """The call has produced so many tokens in all."""
        flight = self.flights.get(call_id)
        if flight is None:
            return
        if not flight.decoding:
            self.first_token(call_id, now)
        row = self._rows[flight.row]
        row[kernel.F_AGE], row[kernel.F_AGE_AT] = tokens, now
        if tokens - flight.seen_tokens >= MIN_SEGMENT_TOKENS:
            i = self.index[flight.replica]
            self._advance(i, now)
            self._learn(flight, i, tokens - flight.seen_tokens, now)
            flight.seen_s, flight.seen_tokens, flight.seen_integrals = now, tokens, self._integral(i)

    def finish(self, call_id: str, tokens: float, now: float) -> Flight | None:
        """Learn from a call that ended well, and take it off the book."""
        flight = self.flights.get(call_id)
        if flight is None:
            return None
        i = self.index[flight.replica]
        self._advance(i, now)
        if flight.decoding:
            self._learn(flight, i, tokens - flight.seen_tokens, now)
        elif not flight.queued:
            self._integrals[i][3] += flight.uncached
            self._learn(flight, i, tokens, now)
        return self.remove(call_id, now)

    def remove(self, call_id: str, now: float) -> Flight | None:
        """Take a call off the book without learning from it; None when it is not there."""
        flight = self.flights.pop(call_id, None)
        if flight is None:
            return None
        last = len(self._ids) - 1
        if flight.row != last:
            self._rows[flight.row] = self._rows[last]
            self._ids[flight.row] = self._ids[last]
            self.flights[self._ids[last]].row = flight.row
        self._ids.pop()
        i = self.index.get(flight.replica)
        if i is None:
            return flight
        self._advance(i, now)
        self._on[i].discard(call_id)
        table = self.replicas
        table[kernel.MINE, i] -= 1
        self._kv_book[i] -= flight.need
        if not flight.decoding:
            table[kernel.AWAITING, i] -= 1
            if table[kernel.AWAITING, i] == 0:
                table[kernel.STALL_UNTIL, i] = min(table[kernel.STALL_UNTIL, i], now)
        return flight

    def on(self, replica: str) -> set[str]:
        """Ids of our calls in flight on a replica."""
        return self._on[self.index[replica]]

    def refresh(self, now: float) -> int:
        """Update the kernel's rows to `now`; returns how many usable replicas have a free slot."""
        self.sync_constants()
        return int(kernel.refresh(self.replicas, self._rows, len(self._ids), LEVELS, now))

    def flight_table(self) -> Array:
        """(calls in flight, columns + K), a view; columns as in `swarmx.kernel`."""
        return self._rows[: len(self._ids)]

    # ---- what the service model learns from -----------------------------------------------------------------------

    def _advance(self, i: int, now: float) -> None:
        sums = self._integrals[i]
        elapsed = now - sums[0]
        if elapsed > 0:
            n = self.replicas[kernel.MINE, i] + self.replicas[kernel.OTHER, i]
            sums[1] += elapsed * min(n, self.replicas[kernel.SLOTS, i])
            sums[2] += elapsed * min(self._kv_book[i], self.replicas[kernel.KV_CAPACITY, i])
            sums[0] = now

    def _integral(self, i: int) -> tuple[float, float, float]:
        _, batch, kv, prefilled = self._integrals[i]
        return batch, kv, prefilled

    def _learn(self, flight: Flight, i: int, tokens: float, now: float) -> None:
        seconds = now - flight.seen_s
        if seconds <= 0:
            return
        batch, kv, prefilled = (b - a for a, b in zip(flight.seen_integrals, self._integral(i), strict=True))
        self.fit.observe(flight.replica, Segment(seconds, tokens, batch / seconds, kv / seconds, prefilled))
        self._sync_replica(i)

"""The one mutable record: which replicas there are, and what is in flight on each.

The book of a replica holds the calls that we sent there, from their start until they ended in any way or were refused.
Calls of other senders are the difference between what the replica reports and what our book said at that time. Replicas
and flights live in packed arrays (see `swarmx.kernel`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel, kernel_book
from swarmx.engine import OnlineFit
from swarmx.learned import LearnedConstants
from swarmx.prefix import PrefixIndex
from swarmx.quantiles import LEVELS
from swarmx.reserve import Reserve
from swarmx.silence import Outages, silent_replicas
from swarmx.types import Call, ReplicaState
from swarmx.usage import Flight, Marks, between
from swarmx.waiting import Lengths

Array = NDArray[np.float64]
REFRESH_ROWS = 1024  # flights whose remaining work is brought up to date in one event; the next event does the next
MIN_SEGMENT_TOKENS = 16  # shorter stretches between two progress reports are not worth fitting


class ClusterState:
    """Replicas of one model pool and the calls in flight on them.

    learns : whether observations feed the service model (policies that only count do not need it)
    """

    def __init__(self, fit: OnlineFit, learns: bool = True, block_tokens: int = 64) -> None:
        self.fit = fit
        self.prefix = PrefixIndex(block_tokens)
        self.learns = learns
        self.states: list[ReplicaState] = []
        self.index: dict[str, int] = {}
        self.flights: dict[str, Flight] = {}
        self.replicas: Array = np.zeros((kernel.REPLICA_ROWS, 0), order="F")
        self.speeds: Array = np.zeros(0)  # (R,) as configured
        self.learned = LearnedConstants(fit)
        self.starts = 0
        self.free_slots, self.most_slots = 0, 0.0  # of usable replicas, of the largest: as of the last refresh
        self.reserve: Reserve | None = None  # room kept for better classes
        self._rows: Array = np.zeros((64, kernel.FLIGHT_COLUMNS + LEVELS.size))
        self._ids: list[str] = []
        self._on: list[set[str]] = []
        self._out = Outages()
        self._refreshed = 0

    @property
    def is_fitted(self) -> bool:
        """Whether every replica has constants; until then seconds cannot be compared."""
        return self.learned.is_fitted

    def set_replicas(self, states: Sequence[ReplicaState], now: float) -> list[str]:
        """Replace the replicas, keeping the flights of those that stay. Returns ids of calls whose replica is gone."""
        index = {state.id: i for i, state in enumerate(states)}
        if len(index) != len(states):
            raise ValueError(f"replica ids must differ, got {[s.id for s in states]}")
        gone = [name for name in self.index if name not in index]
        lost = sorted(call for name in gone for call in self._on[self.index[name]])
        for call in lost:
            self.remove(call, now)
        self._out.hung.difference_update(gone)
        for name in gone:
            self.fit.forget(name)
        old = [self.index.get(state.id) for state in states]
        table = np.zeros((kernel.REPLICA_ROWS, len(states)), order="F")
        table[[kernel.SINCE, kernel.HEARD_AT]] = now
        for i, j in enumerate(old):
            if j is not None:
                table[:, i] = self.replicas[:, j]
        self._on = [set() if j is None else self._on[j] for j in old]
        self.replicas, self.index, self.states = table, index, list(states)
        self.speeds = np.array([s.speed for s in states])
        mean_speed = float(self.speeds.mean()) if states else 1.0
        for i, state in enumerate(states):
            for call in self._on[i]:
                self._rows[self.flights[call].row, kernel.F_REPLICA] = i
            self.fit.place(state.id, state.device, state.speed / mean_speed)
            self._adopt(i, state)
        self.prefix.set_replicas(old, table[kernel.KV_CAPACITY])
        self.learned.place(states, table)
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
        self._set_usable(i)
        if state.reported_s is None:
            return
        mine = [self.flights[call] for call in self._on[i]]
        before = sum(f.started_s <= state.reported_s for f in mine)
        reported = state.running + state.waiting
        others = max(0, reported - before)
        table[kernel.OTHER, i] = others
        table[kernel.OTHER_KV, i] = others / max(1, reported) * state.kv_tokens
        table[kernel.REPORTED_KV, i] = state.kv_tokens
        table[kernel.SENT_SINCE_KV, i] = sum(f.need for f in mine if f.started_s > state.reported_s)

    def _set_usable(self, i: int) -> None:
        state = self.states[i]
        self.replicas[kernel.USABLE, i] = float(not (state.draining or state.breaker_open or state.id in self._out))

    def pause(self, replica: str, until_s: float) -> None:
        """Send nothing there until then, at least."""
        self._out.pause(replica, until_s)
        self._set_usable_again([replica])

    def resume(self, now: float) -> None:
        """End the pauses that are over."""
        if self._out.paused:
            self._set_usable_again(self._out.over(now))

    def _set_usable_again(self, replicas: Sequence[str]) -> None:
        for replica in replicas:
            if replica in self.index:
                self._set_usable(self.index[replica])

    def find_hung(self, now: float) -> list[str]:
        """Take silent replicas (`swarmx.silence`) out of use, until their first sign of life; returns the new ones."""
        lost_all = [name for name in self._out.hung if not self._on[self.index[name]]]  # no sign can come: try them
        self._out.hung.difference_update(lost_all)
        self._set_usable_again(lost_all)
        rows_on = [[self.flights[call].row for call in calls] for calls in self._on]
        found = silent_replicas(self.replicas, self._rows, rows_on, now)
        names = [name for name in (self.states[i].id for i in found) if name not in self._out.hung]
        self._out.hung.update(names)
        self._set_usable_again(names)
        return names

    def _hear(self, i: int, prefilled: float, now: float) -> Marks:
        """Replica i shows life, and by that, that so many prompt tokens more have been prefilled."""
        self._not_hung(i)
        marks: Marks = kernel_book.hear(self.replicas, i, prefilled, now)
        return marks

    def _not_hung(self, i: int) -> None:
        if self._out.hung and self.states[i].id in self._out.hung:
            self._out.hung.discard(self.states[i].id)
            self._set_usable(i)

    def start(self, call: Call, lengths: Lengths, i: int, now: float) -> None:
        """Enter a call into the book of replica i. Prompt blocks that running calls hold there cost it no KV memory."""
        call_id, blocks = call.id, call.prefix_blocks
        prompt = uncached = float(call.prompt_tokens)
        if blocks:
            prompt -= float(self.prefix.live(blocks)[i])
            uncached -= float(self.prefix.cached(blocks)[i])
        held = self.prefix.start(i, blocks) if blocks else 0
        row = len(self._ids)
        if row == self._rows.shape[0]:
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[row, kernel.FLIGHT_COLUMNS :] = lengths.grid
        queued, need, uncached, marks = kernel_book.enter(
            self.replicas, self._rows, row, i, lengths.mean, prompt, uncached, call.streamed, lengths.excess, now
        )
        self.flights[call_id] = Flight(
            call_id, self.states[i].id, row, now, uncached, need, queued, now, marks, blocks, held
        )
        self._ids.append(call_id)
        self._on[i].add(call_id)
        self.starts += 1

    def first_token(self, call_id: str, now: float) -> None:
        """The call's prefill is done and it decodes."""
        flight = self.flights.get(call_id)
        if flight is None or flight.decoding:
            return
        i = self.index[flight.replica]
        marks = self._hear(i, flight.uncached, now)
        if not flight.queued:
            self._learn(flight, i, marks, 0.0, now)
        flight.decoding = True
        flight.see(now, 1.0, marks)
        kernel_book.decodes(self.replicas, self._rows, flight.row, i, now)

    def progress(self, call_id: str, tokens: float, now: float) -> None:
        """The call has produced so many tokens in all."""
        flight = self.flights.get(call_id)
        if flight is None:
            return
        if not flight.decoding:
            self.first_token(call_id, now)
        i = self.index[flight.replica]
        row = self._rows[flight.row]
        row[kernel.F_AGE], row[kernel.F_AGE_AT] = tokens, now
        if tokens - flight.seen_tokens >= MIN_SEGMENT_TOKENS:
            marks = self._hear(i, 0.0, now)
            self._learn(flight, i, marks, tokens - flight.seen_tokens, now)
            flight.see(now, tokens, marks)
        else:
            self._not_hung(i)
            self.replicas[kernel.HEARD_AT, i] = now

    def finish(self, call_id: str, tokens: float, now: float) -> Flight | None:
        """Learn from a call that ended well, and take it off the book; None when it is not there."""
        flight = self.flights.get(call_id)
        if flight is None:
            return None
        i = self.index[flight.replica]
        marks = self._hear(i, 0.0 if flight.decoding else flight.uncached, now)
        if flight.decoding or not flight.queued:
            self._learn(flight, i, marks, tokens - flight.seen_tokens, now)
        return self.remove(call_id, now, finished=True)

    def remove(self, call_id: str, now: float, finished: bool = False) -> Flight | None:
        """Take a call off the book without learning from it; None when it is not there.

        finished : it ended well, so its prompt is in the replica's prefix cache even if no first token was seen
        """
        flight = self.flights.pop(call_id, None)
        if flight is None:
            return None
        i, row, last = self.index[flight.replica], flight.row, self._ids.pop()
        kernel_book.leave(self.replicas, self._rows, row, len(self._ids), i, flight.need, not flight.decoding, now)
        if row != len(self._ids):
            self._ids[row] = last
            self.flights[last].row = row
        self._on[i].discard(call_id)
        if flight.blocks:
            self.prefix.end(i, flight.blocks, None if flight.decoding or finished else flight.held)
        return flight

    def on(self, replica: str) -> frozenset[str]:
        """Ids of our calls in flight on a replica."""
        return frozenset(self._on[self.index[replica]])

    def refresh(self, now: float) -> int:
        """Bring N, KV, REMAINING and TAU up to `now`; returns how many slots of usable replicas are free."""
        count, begin = len(self._ids), self._refreshed % max(len(self._ids), 1)
        self._refreshed = begin + REFRESH_ROWS
        free, self.most_slots = kernel.refresh(self.replicas, self._rows, count, begin, REFRESH_ROWS, LEVELS, now)
        self.free_slots = int(free)
        return self.free_slots

    def flight_table(self) -> Array:
        """(calls in flight, columns + K), a view; columns as in `swarmx.kernel`."""
        return self._rows[: len(self._ids)]

    def _learn(self, flight: Flight, i: int, marks: Marks, tokens: float, now: float) -> None:
        seconds = now - flight.seen_s
        if self.learns and seconds > 0:
            self.fit.observe(flight.replica, between(flight.seen_marks, marks, seconds, tokens))
            self.learned.observed(i, self.replicas)

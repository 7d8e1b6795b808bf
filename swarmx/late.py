"""Look-ahead late binding: a call starts only where it would end soonest, and only when that place is free now.

In every walk the waiting calls are taken in order. Each looks at all replicas, busy ones too, with the time until
enough of their calls have ended; if the cheapest can take it now it starts there, else it reserves a place there for
the rest of this walk and stays unbound. Nothing is promised from one walk to the next, except to calls that are due.

Starvation bound, of our own queue alone: calls that were overtaken too often or held too long are due, as
`swarmx.ordering.aging` says. Due calls are looked at first, oldest first, and keep the replica they wait for; so a due
call starts at the latest when the calls running there then, and earlier-due calls started there, have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel, kernel_walk
from swarmx.state import ClusterState
from swarmx.waiting import NO_PIN, Waiting, WaitingQueue

Array = NDArray[np.float64]
EMPTY = np.zeros((0, 0))
NONE_BLOCKED = np.zeros((0, 0), dtype=np.bool_)
FIRST_CHUNK = 8
LOOK_AT_ALL, LOOK_AT = 64, 8  # replicas; of each kind: 8 cost .06 % more than all, 4 .14 %, and 2 .5 %
WAIT_WEIGHT, ONE_AT_A_TIME = 4.0, 2.0


@dataclass(frozen=True, slots=True)
class LateWalk:
    """Parameters of the walk.

    harm_weight : weight of the delay caused to running calls; None chooses 1, or 0.5 where prompts are long on average
    prefix_weight : weight of prefill seconds; 2 where sessions come back with a longer prefix
    wait_weight : weight of the seconds before the first token beside those of decoding: 1 minimises the expected end
        alone, and then first tokens come late wherever a busy fast replica beats a free slow one; None chooses 4, or 2
        where each replica runs one call at a time
    """

    harm_weight: float | None = None
    prefix_weight: float = 1.0
    wait_weight: float | None = None
    long_prompt_tokens: float = 4000.0

    def weight_of_harm(self, mean_prompt: float) -> float:
        """The configured weight, or the one that suits prompts of that mean length."""
        if self.harm_weight is not None:
            return self.harm_weight
        return 0.5 if mean_prompt > self.long_prompt_tokens else 1.0

    def weight_of_wait(self, cluster: ClusterState) -> float:
        """The configured weight, or the one that suits these replicas."""
        if self.wait_weight is not None:
            return self.wait_weight
        return WAIT_WEIGHT if cluster.replicas[kernel.SLOTS].max(initial=1.0) > 1 else ONE_AT_A_TIME

    def weights(self, cluster: ClusterState, mean_prompt: float) -> tuple[float, float]:
        """Of the harm and of the wait, as configured or as suits the prompts and the replicas."""
        return self.weight_of_harm(mean_prompt), self.weight_of_wait(cluster)

    def starts(
        self,
        queue: WaitingQueue,
        due: tuple[list[Waiting], list[Waiting]],
        cluster: ClusterState,
        mean_prompt: float,
        now: float,
    ) -> Iterator[tuple[Waiting, int]]:
        """Yield each call to start and the index of its replica.

        The caller refreshes the cluster before, and carries out each start before it takes the next.
        due : those that go before all others and those that go after them; marked in the queue, which skips them
        mean_prompt : running mean of the pool
        """
        harm, wait = self.weights(cluster, mean_prompt)
        walk = _Walk(cluster, queue, (harm, self.prefix_weight, wait), now)
        if due[0]:
            yield from walk.over_due(due[0])
        yield from walk.over_others()
        if due[1]:
            yield from walk.over_due(due[1])


class _Walk:
    """One pass over a queue: what has been reserved so far, and how many more calls it looks at."""

    def __init__(
        self, cluster: ClusterState, queue: WaitingQueue, weights: tuple[float, float, float], now: float
    ) -> None:
        self.cluster, self.queue, self.now = cluster, queue, now
        self.weights = weights  # of harm, of prefill, of the wait
        self.reserved = np.zeros((3, len(cluster.states)))
        table = cluster.replicas
        free = np.maximum(table[kernel.SLOTS] - table[kernel.N], 0) @ table[kernel.USABLE]
        self.left = int(max(4 * len(cluster.states), 4 * free))
        self.order, self.starts, self.width = grouped(cluster)
        self.keys = np.zeros(len(cluster.states))
        self.typical = (0.0, 0.0)
        if self.width < len(cluster.states):
            rows = queue.rows(0, 256)
            mean = float(rows[:, kernel.W_MEAN].mean())
            self.typical = (mean, float(rows[:, kernel.W_PROMPT].mean()) + mean / 2)
            kernel_walk.sort_groups(
                table, self.reserved, self.order, self.starts, self.keys, self.typical, now, weights[0], weights[2]
            )

    def over_due(self, due: list[Waiting]) -> Iterator[tuple[Waiting, int]]:
        """Each due call starts on the replica it is pinned to, or on a free one that ends it no later."""
        rows = np.array([self.queue.row(w) for w in due])
        rows[:, kernel.W_DUE] = 1.0
        rows[:, kernel.W_PIN] = [self.cluster.index.get(w.pin, -1) for w in due]
        pins = np.full(len(due), -1, dtype=np.int64)
        row = 0
        while True:
            row, target, _ = self._next(rows, due, row, pins)
            if target < 0:
                break
            yield due[row], target
            self._filled(target)
            row += 1
        for waiting, pin in zip(due, pins, strict=True):
            waiting.pin = self.cluster.states[pin].id if pin >= 0 else NO_PIN

    def over_others(self) -> Iterator[tuple[Waiting, int]]:
        """The rest in order, handed to the kernel in growing pieces since most walks end within a few calls."""
        place, size = 0, FIRST_CHUNK
        while self.left > 0 and place < len(self.queue):
            rows = self.queue.rows(place, size)
            named = self.queue.tracking_prefix or self.queue.refused or self.cluster.reserve is not None
            calls = self.queue.slice(place, size) if named else ()
            row, target, looked = self._next(rows, calls, 0, np.empty(len(rows), dtype=np.int64))
            self.left -= looked
            place += row
            if target >= 0:  # it leaves the queue, and those behind it move up to its place
                yield self.queue.slice(place, 1)[0], target
                self._filled(target)
            elif looked < 0:  # no slot is free any more
                return
            else:
                size *= 2

    def _filled(self, replica: int) -> None:
        """A call has been started there: where only part of the replicas is looked at, its place among them changes."""
        if self.width < len(self.cluster.states):
            kernel_walk.resort(
                self.cluster.replicas, self.reserved, self.order, self.starts, self.keys, replica, self.typical,
                self.now, self.weights[0], self.weights[2],
            )  # fmt: skip

    def _next(self, rows: Array, calls: Sequence[Waiting], begin: int, pins: NDArray[np.int64]) -> tuple[int, int, int]:
        live, cached = _prefixes(calls, self.cluster) if self.queue.tracking_prefix else (EMPTY, EMPTY)
        some = self.queue.refused or self.cluster.reserve is not None
        blocked = _blocked(calls, self.cluster, self.now) if some else NONE_BLOCKED
        row, target, looked = kernel_walk.walk(
            self.cluster.replicas, rows, begin, blocked, live, cached, self.reserved,
            self.order, self.starts, self.keys, self.width, self.typical, self.now, *self.weights, pins,
        )  # fmt: skip
        return int(row), int(target), int(looked)


def grouped(cluster: ClusterState) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(replicas by group, where each group starts and the last ends, how many of a group a walk looks at).

    Up to `LOOK_AT_ALL` replicas are one group, all of it looked at; more are grouped by device kind.
    """
    count = len(cluster.states)
    if count <= LOOK_AT_ALL:
        return np.arange(count), np.array([0, count]), count
    starts = np.concatenate(([0], np.cumsum(np.bincount(cluster.kinds))))
    return np.argsort(cluster.kinds, kind="stable"), starts, LOOK_AT


def _prefixes(calls: Sequence[Waiting], cluster: ClusterState) -> tuple[Array, Array]:
    """(W, R) prompt tokens held by running calls, and in the cache."""
    prefix = cluster.prefix
    live = np.array([prefix.live(w.call.prefix_blocks) for w in calls])
    return live, np.array([prefix.cached(w.call.prefix_blocks) for w in calls])


def _blocked(calls: Sequence[Waiting], cluster: ClusterState, now: float) -> NDArray[np.bool_]:
    """(W, R) replicas that refused the call a moment ago, or keep their free slots for better classes."""
    blocked = np.zeros((len(calls), len(cluster.states)), dtype=np.bool_)
    for row, waiting in enumerate(calls):
        for replica, until in waiting.refused.items():
            if until > now and replica in cluster.index:
                blocked[row, cluster.index[replica]] = True
    if cluster.reserve is not None and len(calls):
        levels = [w.level for w in calls]
        closed = {k: cluster.reserve.closed(k, cluster.states, cluster.replicas) for k in set(levels)}
        blocked |= np.array([closed[level] for level in levels])
    return blocked

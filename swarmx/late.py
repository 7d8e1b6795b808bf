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
NO_PINS = np.zeros(0, dtype=np.int64)
NO_KEYS = np.zeros(0)
FIRST_CHUNK = 8
LOOK_AT_ALL, LOOK_AT = 64, 4  # replicas; of each kind: 4 cost .14 % more than all, 8 .06 %, and 2 .5 %
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

    def weight_of_wait(self, most_slots: float) -> float:
        """The configured weight, or the one that suits replicas of which the largest has so many slots."""
        if self.wait_weight is not None:
            return self.wait_weight
        return WAIT_WEIGHT if most_slots > 1 else ONE_AT_A_TIME

    def weights(self, cluster: ClusterState, mean_prompt: float) -> tuple[float, float]:
        """Of the harm and of the wait, as configured or as suits the prompts and the replicas."""
        return self.weight_of_harm(mean_prompt), self.weight_of_wait(cluster.most_slots)

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
        walk = _Walk(cluster, queue, (harm, self.prefix_weight, wait), cluster.free_slots, now)
        if due[0]:
            yield from walk.over_due(due[0])
        yield from walk.over_others()
        if due[1]:
            yield from walk.over_due(due[1])


class _Walk:
    """One pass over a queue: what has been reserved so far, free slots, and how many more calls it looks at."""

    def __init__(
        self, cluster: ClusterState, queue: WaitingQueue, weights: tuple[float, float, float], free: int, now: float
    ) -> None:
        self.cluster, self.queue, self.now = cluster, queue, now
        self.weights = weights  # of harm, of prefill, of the wait
        count = len(cluster.states)
        self.reserved = np.zeros((3, count), order="F")
        self.free, self.left = free, 4 * max(count, free)
        self.order, self.starts = cluster.learned.one_group
        self.width, self.typical, self.keys = count, (0.0, 0.0), NO_KEYS
        if count > LOOK_AT_ALL:
            self._sort()

    def _sort(self) -> None:
        """Sort the replicas of each kind by what a typical call costs there. The walk changes its own copy alone: what
        it reserves is forgotten, so the order before it is nearer to the next one's."""
        cluster, queue = self.cluster, self.queue
        order, self.starts = cluster.learned.groups
        rows = queue.numbers[queue.line(0, 256)]
        mean = float(rows[:, kernel.W_MEAN].mean())
        self.width, self.typical = LOOK_AT, (mean, float(rows[:, kernel.W_PROMPT].mean()) + mean / 2)
        self.keys = np.empty(order.size)
        kernel_walk.sort_groups(
            cluster.replicas, self.reserved, order, self.starts, self.keys, self.typical, self.now, self.weights[0],
            self.weights[2],
        )  # fmt: skip
        self.order = order.copy()

    def over_due(self, due: list[Waiting]) -> Iterator[tuple[Waiting, int]]:
        """Each due call starts on the replica it is pinned to, or on a free one that ends it no later."""
        rows = self.queue.numbers[[w.row for w in due]]  # a copy
        rows[:, kernel.W_DUE] = 1.0
        rows[:, kernel.W_PIN] = [self.cluster.index.get(w.pin, -1) for w in due]
        pins = np.full(len(due), -1, dtype=np.int64)
        row, line = 0, np.arange(len(due))
        while row < len(due):
            row, target, _ = self._next(rows, line, due, row, len(due), pins)
            if target < 0:
                break
            yield due[row], target
            self._filled(target)
            row += 1
        for waiting, pin in zip(due, pins, strict=True):
            waiting.pin = self.cluster.states[pin].id if pin >= 0 else NO_PIN

    def over_others(self) -> Iterator[tuple[Waiting, int]]:
        """The rest in order; where the kernel needs more of a call than its numbers, in growing pieces, since most
        walks end within a few calls."""
        place, size, queue = 0, FIRST_CHUNK, self.queue
        while self.free > 0 and self.left > 0 and place < (length := len(queue)):
            named = queue.tracking_prefix or queue.refused or self.cluster.reserve is not None
            line = queue.line(place, size if named else length)
            calls = queue.slice(place, size) if named else ()
            row, target, looked = self._next(queue.numbers, line, calls, 0, self.left, NO_PINS)
            self.left -= looked
            place += row
            if target >= 0:  # it leaves the queue, and those behind it move up to its place
                yield queue.slice(place, 1)[0], target
                self._filled(target)
            else:
                size *= 2

    def _filled(self, replica: int) -> None:
        """A call has been started there: where only part of the replicas is looked at, its place among them changes."""
        self.free -= 1
        if self.width < len(self.cluster.states):
            kernel_walk.resort(
                self.cluster.replicas, self.reserved, self.order, self.starts, self.cluster.learned.kinds, self.keys,
                replica, self.typical, self.now, self.weights[0], self.weights[2],
            )  # fmt: skip

    def _next(
        self,
        rows: Array,
        line: NDArray[np.int64],
        calls: Sequence[Waiting],
        begin: int,
        left: int,
        pins: NDArray[np.int64],
    ) -> tuple[int, int, int]:
        live, cached = _prefixes(calls, self.cluster) if self.queue.tracking_prefix else (EMPTY, EMPTY)
        some = self.queue.refused or self.cluster.reserve is not None
        blocked = _blocked(calls, self.cluster, self.now) if some else NONE_BLOCKED
        row, target, looked = kernel_walk.walk(
            self.cluster.replicas, rows, line, begin, left, blocked, live, cached, self.reserved, self.order,
            self.starts, self.cluster.learned.kinds, self.keys, self.width, self.typical, self.now, *self.weights, pins,
        )  # fmt: skip
        return int(row), int(target), int(looked)


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

"""Look-ahead late binding: a call starts only where it would end soonest, and only when that place is free now.

In every walk the waiting calls are taken in order. Each looks at all replicas, busy ones too, with the time until
enough of their calls have ended; if the cheapest can take it now it starts there, else it reserves a place there for
the rest of this walk and stays unbound. Nothing is promised from one walk to the next, except to calls that are due.

Starvation bound, of our own queue alone: a call that was overtaken `overtakes` times or held `hold_services` mean
service times is due. Due calls are looked at first, oldest first, and keep the replica they wait for; so a due call
starts at the latest when the calls running there then, and earlier-due calls started there, have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.state import ClusterState
from swarmx.waiting import NO_PIN, Waiting, WaitingQueue

EMPTY = np.zeros((0, 0))
NONE_BLOCKED = np.zeros((0, 0), dtype=np.bool_)
FIRST_CHUNK = 8  # most walks end within a few calls, so the queue is handed to the kernel in growing pieces


@dataclass(frozen=True, slots=True)
class LateWalk:
    """Parameters of the walk.

    harm_weight : weight of the delay caused to running calls; None chooses 1, or 0.5 where prompts are long on average
    prefix_weight : weight of prefill seconds; 2 where sessions come back with a longer prefix
    overtakes, hold_services : when a call is due
    """

    harm_weight: float | None = None
    prefix_weight: float = 1.0
    overtakes: int = 64
    hold_services: float = 30.0
    long_prompt_tokens: float = 4000.0

    def weight_of_harm(self, mean_prompt: float) -> float:
        """The configured weight, or the one that suits prompts of that mean length."""
        if self.harm_weight is not None:
            return self.harm_weight
        return 0.5 if mean_prompt > self.long_prompt_tokens else 1.0

    def starts(
        self,
        queue: WaitingQueue,
        cluster: ClusterState,
        mean_service_s: float,
        mean_prompt: float,
        now: float,
    ) -> Iterator[tuple[Waiting, int]]:
        """Yield each call to start and the index of its replica.

        The caller refreshes the cluster before, and carries out each start before it takes the next.
        mean_service_s, mean_prompt : running means of the pool
        """
        harm_weight = self.weight_of_harm(mean_prompt)
        replicas = len(cluster.states)
        slots = float(
            np.sum(
                cluster.replicas[kernel.SLOTS] - cluster.replicas[kernel.N],
                where=cluster.replicas[kernel.USABLE] > 0,
            )
        )
        left = int(max(4 * replicas, 4 * slots))  # calls still to be looked at
        reserved = np.zeros((3, replicas))
        for chunk, is_due in self._chunks(queue, mean_service_s, now):
            table = np.array([_row(w, is_due, cluster) for w in chunk])
            blocked = _blocked(chunk, cluster, now)
            live, cached = _prefixes(chunk, cluster)
            pins = np.full(len(chunk), -1, dtype=np.int64)
            row = 0
            while True:
                row, target = kernel.walk(
                    cluster.replicas, table, row, blocked, live, cached, reserved, now, harm_weight, self.prefix_weight,
                    pins,
                )  # fmt: skip
                if target < 0:
                    break
                yield chunk[row], target
                if chunk[row].call.prefix_blocks:  # its blocks are there now, for its siblings too
                    live, cached = _prefixes(chunk, cluster)
                row += 1
            for waiting, pin in zip(chunk, pins, strict=True):
                waiting.pin = cluster.states[pin].id if is_due and pin >= 0 else NO_PIN
            left -= int(np.count_nonzero(pins >= 0))
            if left <= 0 or not _any_free(cluster):
                return

    def _chunks(self, queue: WaitingQueue, mean_service_s: float, now: float) -> Iterator[tuple[list[Waiting], bool]]:
        """(calls, whether they are due): the due ones, oldest due first, then the others by key.

        Calls that the caller starts leave the queue between two chunks.
        """
        due = self._due(queue, mean_service_s, now)
        size = FIRST_CHUNK
        for begin in range(0, len(due), FIRST_CHUNK):
            yield due[begin : begin + FIRST_CHUNK], True
        chosen = {w.call.id for w in due}
        place = 0
        while chunk := queue.slice(place, size):
            others = [w for w in chunk if w.call.id not in chosen] if chosen else chunk
            if others:
                yield others, False
            place += sum(not w.gone for w in chunk)
            size *= 2

    def _due(self, queue: WaitingQueue, mean_service_s: float, now: float) -> list[Waiting]:
        held = now - self.hold_services * mean_service_s if mean_service_s > 0 else -np.inf
        oldest = queue.oldest_since()
        if queue.most_overtaken() < self.overtakes and (oldest is None or oldest > held):
            return []
        due = [w for w in queue if w.overtaken >= self.overtakes or w.since_s <= held]
        for waiting in due:
            if waiting.due_s is None:
                waiting.due_s = now
        return sorted(due, key=lambda w: (w.due_s, w.key))


def _row(waiting: Waiting, due: bool, cluster: ClusterState) -> tuple[float, ...]:
    pin = cluster.index.get(waiting.pin, -1) if due else -1
    return waiting.lengths.mean, waiting.lengths.own, waiting.call.prompt_tokens, waiting.limit, float(due), pin


def _prefixes(chunk: list[Waiting], cluster: ClusterState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(W, R) prompt tokens held by running calls, and in the cache; empty when no call tracks its prefix."""
    if not any(w.call.prefix_blocks for w in chunk):
        return EMPTY, EMPTY
    prefix = cluster.prefix
    live = np.array([prefix.live(w.call.prefix_blocks) for w in chunk])
    return live, np.array([prefix.cached(w.call.prefix_blocks) for w in chunk])


def _blocked(chunk: list[Waiting], cluster: ClusterState, now: float) -> NDArray[np.bool_]:
    if not any(w.refused for w in chunk):
        return NONE_BLOCKED
    blocked = np.zeros((len(chunk), len(cluster.states)), dtype=np.bool_)
    for row, waiting in enumerate(chunk):
        for replica, until in waiting.refused.items():
            if until > now and replica in cluster.index:
                blocked[row, cluster.index[replica]] = True
    return blocked


def _any_free(cluster: ClusterState) -> bool:
    table = cluster.replicas
    return bool(np.any((table[kernel.USABLE] > 0) & (table[kernel.N] < table[kernel.SLOTS])))

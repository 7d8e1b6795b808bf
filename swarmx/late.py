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
        due, others = self._in_order(queue, mean_service_s, now)
        for chunk, is_due in _chunks(due, others):
            table = np.array([_row(w, is_due, cluster) for w in chunk])
            blocked = _blocked(chunk, cluster, now)
            pins = np.full(len(chunk), -1, dtype=np.int64)
            row = 0
            while True:
                row, target = kernel.walk(
                    cluster.replicas,
                    table,
                    row,
                    blocked,
                    EMPTY,
                    EMPTY,
                    reserved,
                    now,
                    harm_weight,
                    self.prefix_weight,
                    pins,
                )
                if target < 0:
                    break
                yield chunk[row], target
                row += 1
            for waiting, pin in zip(chunk, pins, strict=True):
                waiting.pin = cluster.states[pin].id if is_due and pin >= 0 else NO_PIN
            left -= int(np.count_nonzero(pins >= 0))
            if left <= 0 or not _any_free(cluster):
                return

    def _in_order(self, queue: WaitingQueue, mean_service_s: float, now: float) -> tuple[list[Waiting], list[Waiting]]:
        """(due calls, oldest due first; the others by key)."""
        held = now - self.hold_services * mean_service_s if mean_service_s > 0 else -np.inf
        oldest = queue.oldest_since()
        if queue.most_overtaken() < self.overtakes and (oldest is None or oldest > held):
            return [], list(queue)
        due = [w for w in queue if w.overtaken >= self.overtakes or w.since_s <= held]
        for waiting in due:
            if waiting.due_s is None:
                waiting.due_s = now
        due.sort(key=lambda w: (w.due_s, w.key))
        chosen = {w.call.id for w in due}
        return due, [w for w in queue if w.call.id not in chosen]


def _chunks(due: list[Waiting], others: list[Waiting]) -> Iterator[tuple[list[Waiting], bool]]:
    for calls, is_due in ((due, True), (others, False)):
        begin, size = 0, FIRST_CHUNK
        while begin < len(calls):
            yield calls[begin : begin + size], is_due
            begin, size = begin + size, size * 2


def _row(waiting: Waiting, due: bool, cluster: ClusterState) -> tuple[float, ...]:
    pin = cluster.index.get(waiting.pin, -1) if due else -1
    return waiting.lengths.mean, waiting.lengths.own, waiting.call.prompt_tokens, waiting.limit, float(due), pin


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

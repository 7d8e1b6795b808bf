"""Which replicas can take a call, and which of them is the cheapest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.combination import Combination
from swarmx.routing.placement import outstanding
from swarmx.state import ClusterState
from swarmx.types import PRIORITIES, Call
from swarmx.waiting import Waiting, WaitingQueue


def usable(cluster: ClusterState, waiting: Waiting, now: float) -> NDArray[np.bool_]:
    """(R,) replicas that may serve the call now: open, large enough, and not just having refused it."""
    table = cluster.replicas
    cap = np.minimum(table[kernel.CONTEXT], table[kernel.KV_CAPACITY])
    found: NDArray[np.bool_] = (table[kernel.USABLE] > 0) & (waiting.call.prompt_tokens + 1 <= cap)
    for replica, until in waiting.refused.items():
        if until > now and replica in cluster.index:
            found[cluster.index[replica]] = False
    if cluster.reserve is not None:
        found &= ~cluster.reserve.closed(waiting.level, cluster.states, table)
    return found


def room(cluster: ClusterState, waiting: Waiting) -> tuple[NDArray[np.bool_], bool]:
    """((R,) replicas with a free slot and KV room for the call, whether any has a free slot)."""
    table = cluster.replicas
    n = table[kernel.MINE] + table[kernel.OTHER]
    free = (n < table[kernel.SLOTS]) & (table[kernel.USABLE] > 0)
    need = waiting.call.prompt_tokens + waiting.lengths.mean / 2
    fits = (table[kernel.KV] + need <= table[kernel.KV_CAPACITY]) | (n == 0)
    return free & fits, bool(free.any())


def cheapest(cluster: ClusterState, costs: NDArray[np.float64], usable: NDArray[np.bool_]) -> int:
    """Argmin over usable replicas; ties go to the emptier one, then to the first."""
    masked = np.where(usable, costs, np.inf)
    ties = np.flatnonzero(masked == masked.min())
    if ties.size == 1:
        return int(ties[0])
    fill = outstanding(cluster)[ties] / cluster.replicas[kernel.SLOTS, ties]
    return int(ties[np.argmin(fill)])


def impossible(cluster: ClusterState, call: Call) -> str | None:
    """Why no replica could ever serve the call, or None."""
    if not cluster.states:
        return None
    longest = kernel.longest_call(cluster.replicas)
    if call.prompt_tokens + 1 > longest:
        return f"a prompt of {call.prompt_tokens} tokens fits no replica; the largest takes {longest - 1:.0f}"
    reserve = cluster.reserve
    if reserve is not None and reserve.excluded(PRIORITIES.index(call.priority), cluster.states).all():
        return f"every replica is reserved for better classes than {call.priority}"
    return None


def starts(
    parts: Combination,
    queue: WaitingQueue,
    due: tuple[list[Waiting], list[Waiting]],
    cluster: ClusterState,
    now: float,
    rng: np.random.Generator,
) -> Iterator[tuple[Waiting, int]]:
    """Each waiting call in order on its cheapest replica, under late binding only on one that is free.

    due : those that go before all others and those that go after them
    The caller carries out each start before it takes the next.
    """
    late = parts.binding == "late"
    first, last = due
    chosen = set(map(id, (*first, *last)))
    for waiting in (*first, *(w for w in list(queue) if id(w) not in chosen), *last):
        found = usable(cluster, waiting, now)
        if late:
            free, slot_free = room(cluster, waiting)
            if not slot_free:
                break
            found &= free
        if found.any():
            costs = parts.placement.costs(waiting, cluster, found, now, rng)
            yield waiting, cheapest(cluster, costs, found)

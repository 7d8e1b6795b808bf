"""Moving calls between replicas: running ones from a hot to a cold one, waiting ones to an idle one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from swarmx.preemption import Costs, Place, Running


@dataclass(frozen=True, slots=True)
class Shift:
    """Take the call from its replica to that one. stall_s : seconds in which it stands still"""

    call_id: str
    target: int
    stall_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Migration:
    """Live migration of a running call when one replica is hot and another cold.

    hot, cold : KV memory in use, as a share, above and below which a replica is one or the other
    most : moves per call; rest_tokens : a call that has less to produce is not worth moving
    The call with the least KV moves, of the worst class first. After Llumnix (OSDI 2024): the KV cache is copied while
    the call goes on, and it stands still for the last round alone.
    """

    hot: float = 0.85
    cold: float = 0.5
    most: int = 2
    rest_tokens: float = 32.0
    costs: Costs = field(default_factory=Costs)

    def decide(
        self, running: Sequence[Running], places: Sequence[Place], capacity: Sequence[float], now: float
    ) -> Iterator[Shift]:
        """At most one move per hot replica; capacity : KV tokens of each replica."""
        use = [1 - place.room / cap if place.known else np.nan for place, cap in zip(places, capacity, strict=True)]
        cold = sorted(
            (i for i, p in enumerate(places) if p.usable and p.known and use[i] < self.cold and p.running < p.slots),
            key=lambda i: use[i],
        )
        for source in sorted(range(len(places)), key=lambda i: -use[i] if use[i] == use[i] else 0.0):
            if not cold or not use[source] > self.hot:
                return
            target = cold[0]
            able = [
                r for r in running
                if r.replica == source and r.interrupted < self.most and r.rest >= self.rest_tokens
                and r.held + r.rest <= places[target].room
            ]  # fmt: skip
            if able:
                chosen = min(able, key=lambda r: (-r.level, r.held, r.call_id))
                _, stall_s = self.costs.move_s(chosen.held, places[source].tau_s)
                reason = f"migration: KV {use[source]:.0%} against {use[target]:.0%}"
                yield Shift(chosen.call_id, target, stall_s, reason)
                cold.pop(0)


@dataclass(frozen=True, slots=True)
class Stealing:
    """Calls that wait at a busy replica go to an idle one; for bindings that send calls before they can start.

    idle_s : a thief has been idle so long; ratio : or the fullest replica has more than so many times its calls
    most : steals per step; move_s : seconds that the session's cache takes to travel
    The victim is drawn among replicas with waiting calls and at least mean load; its oldest waiting call moves.
    Rules and numbers of SAGA (arXiv 2605.00528).
    """

    idle_s: float = 0.1
    ratio: float = 2.0
    most: int = 4
    move_s: float = 0.23

    def decide(
        self,
        waiting: Sequence[Running],
        places: Sequence[Place],
        idle_since_s: Sequence[float | None],
        now: float,
        rng: np.random.Generator,
    ) -> Iterator[Shift]:
        """waiting : calls sent to a replica that have not begun there; idle_since_s : None for a busy replica."""
        load = [float(p.running) for p in places]
        queues: dict[int, list[Running]] = {}
        for call in sorted(waiting, key=lambda r: (r.started_s, r.call_id)):
            queues.setdefault(call.replica, []).append(call)
        for _ in range(self.most):
            thieves = [
                i for i, p in enumerate(places)
                if p.usable and p.known and load[i] < p.slots
                and (_long_idle(idle_since_s[i], now, self.idle_s) or max(load) > self.ratio * max(load[i], 1.0))
            ]  # fmt: skip
            mean = sum(load) / max(len(load), 1)
            victims = [i for i, queue in sorted(queues.items()) if queue and load[i] >= mean]
            if not thieves or not victims:
                return
            thief = min(thieves, key=lambda i: load[i])
            victim = victims[int(rng.integers(len(victims)))]
            if thief == victim:
                return
            call = queues[victim].pop(0)
            load[victim] -= 1
            load[thief] += 1
            yield Shift(call.call_id, thief, self.move_s, f"stolen from a replica with {load[victim] + 1:.0f} calls")


def _long_idle(since_s: float | None, now: float, least_s: float) -> bool:
    return since_s is not None and now - since_s >= least_s

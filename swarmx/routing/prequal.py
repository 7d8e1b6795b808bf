"""Probed requests in flight and latency, hot and cold replicas: the Prequal balancer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.routing.placement import Array, outstanding
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(slots=True)
class Probe:
    """What one replica answered. in_flight : its calls then, and those sent since on the strength of this answer"""

    replica: str
    in_flight: float
    at_s: float
    uses: int = 0


@dataclass(slots=True)
class ProbePool:
    """The answers that are at hand, oldest first. The one thing here that changes."""

    probes: list[Probe] = field(default_factory=list)
    oldest_next: bool = True

    def expire(self, now: float, age_s: float, reuse: float, known: set[str]) -> None:
        """Drop what is too old, has been used up, or belongs to nobody."""
        self.probes = [p for p in self.probes if now - p.at_s <= age_s and p.uses < reuse and p.replica in known]

    def add(self, probe: Probe, most: int) -> None:
        """An answer replaces the one of the same replica; the oldest makes room."""
        others = [p for p in self.probes if p.replica != probe.replica]
        self.probes = [*others[-(most - 1) :], probe]

    def thin(self, worst: Probe) -> None:
        """Remove the oldest and the worst answer by turns, so that what remains is neither stale nor biased."""
        if len(self.probes) > 2:
            victim = self.probes[0] if self.oldest_next else worst
            self.probes = [p for p in self.probes if p is not victim]
            self.oldest_next = not self.oldest_next


class Prequal:
    """Of the cold replicas in the pool of probes the one with the least latency; if all are hot, the emptiest.

    A replica is hot when its requests in flight exceed the `hot` quantile of the pool. Each call sends out `per_call`
    probes, whose answers serve the calls after it; a pool of fewer than two answers means a random choice.

    hot : 0.84 of the paper; pool, age_s : most answers kept, and for how long
    remove : answers taken out per call
    What is approximated: a probe is answered at once, from our own book; and the latency at a number of requests in
    flight, which a Prequal server takes from its last requests at that number, is that of the learned service model
    for a mean call, 1 / speed until there is one.
    Wydrowski et al. (2024), Load is Not What You Should Balance: Introducing Prequal.
    """

    def __init__(
        self, hot: float = 0.84, per_call: int = 3, pool: int = 16, age_s: float = 1.0, remove: int = 1
    ) -> None:
        self.hot = hot
        self.per_call = per_call
        self.pool = pool
        self.age_s = age_s
        self.remove = remove
        self.answers = ProbePool()

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        names = {state.id for state, ok in zip(cluster.states, usable, strict=True) if ok}
        self.answers.expire(now, self.age_s, self.reuse(len(cluster.states)), names)
        probes = self.answers.probes
        out = np.full(usable.size, np.inf)
        if len(probes) < 2:
            out[usable] = rng.random(int(usable.sum()))
        else:
            order = self.ranking(probes, waiting.lengths.mean, cluster)
            for place, i in enumerate(order):
                out[cluster.index[probes[i].replica]] = place
            probes[order[0]].uses += 1
            probes[order[0]].in_flight += 1
            for i in order[: -self.remove - 1 : -1]:
                self.answers.thin(probes[i])
        self._probe(cluster, usable, now, rng)
        return out

    def reuse(self, replicas: int) -> float:
        """How often an answer may be used: so often that as many are used as come in, with one to spare per call."""
        left = (1 - self.pool / replicas) * self.per_call - self.remove
        return max(1.0, 2 / left) if left > 0 else np.inf

    def ranking(self, probes: list[Probe], mean_tokens: float, cluster: ClusterState) -> list[int]:
        """Places of the answers, best first: cold ones by latency, then hot ones by requests in flight."""
        in_flight = np.array([p.in_flight for p in probes])
        where = [cluster.index[p.replica] for p in probes]
        latency = expected_latency_s(cluster, np.array(where), in_flight, mean_tokens)
        is_hot = in_flight > np.quantile(in_flight, self.hot)
        return [int(i) for i in np.lexsort((np.where(is_hot, in_flight, latency), is_hot))]

    def _probe(self, cluster: ClusterState, usable: NDArray[np.bool_], now: float, rng: np.random.Generator) -> None:
        candidates = np.flatnonzero(usable)
        calls = outstanding(cluster)
        for i in rng.choice(candidates, size=min(self.per_call, candidates.size), replace=False):
            self.answers.add(Probe(cluster.states[i].id, float(calls[i]), now), self.pool)


def expected_latency_s(cluster: ClusterState, where: NDArray[np.intp], in_flight: Array, tokens: float) -> Array:
    """Seconds that a call of so many tokens takes on each replica with so many others in flight there."""
    if not cluster.is_fitted:
        return np.asarray((in_flight + 1) / cluster.speeds[where])
    table = cluster.replicas[:, where]
    running = np.minimum(in_flight + 1, table[kernel.SLOTS])
    tau = table[kernel.A] + table[kernel.B] * running
    return np.asarray(tokens * tau * np.maximum((in_flight + 1) / table[kernel.SLOTS], 1.0))

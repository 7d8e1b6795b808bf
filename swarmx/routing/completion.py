"""Own finish plus the harm done to the calls that run already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.routing.counts import LeastOutstandingPerSpeed
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting

EMPTY = np.zeros(0)
NONE_BLOCKED = np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Completion:
    """Expected seconds until the call ends there, plus harm_weight times the seconds it costs the others.

    harm_weight : 1 counts the others' delay like one's own; 0 is selfish, over-fills fast replicas in batched engines
    prefix_weight : weight of the prefill seconds; above 1 where a prefix will be used again
    wait_weight : weight of the seconds before the first token; 1 counts them like those of decoding
    Until the engine's constants are learned it is LED: fitted seconds are never compared with counts.
    """

    harm_weight: float = 1.0
    prefix_weight: float = 1.0
    wait_weight: float = 1.0

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        cluster.refresh(now)
        if not cluster.is_fitted:
            return LeastOutstandingPerSpeed().costs(waiting, cluster, usable, now, rng)
        return self.total(self.terms(waiting, cluster, now))

    def total(self, terms: Array) -> Array:
        """(R,) what is minimised, of the terms (4, R); infinite where the call never can run."""
        own, harm, _, first = terms
        with np.errstate(invalid="ignore"):
            cost = own + (self.wait_weight - 1) * first + self.harm_weight * harm
        cost[np.isinf(own)] = np.inf
        return np.asarray(cost)

    def terms(self, waiting: Waiting, cluster: ClusterState, now: float) -> Array:
        """(4, R) own finish in s, harm in s, releases to wait for, first token in s; infinite where it never can."""
        out = np.empty((4, len(cluster.states)))
        call, lengths = waiting.call, waiting.lengths
        limit = np.inf if call.max_tokens is None else call.max_tokens
        row = np.array([lengths.mean, lengths.own, call.prompt_tokens, limit])
        blocks = waiting.call.prefix_blocks
        live, cached = (cluster.prefix.live(blocks), cluster.prefix.cached(blocks)) if blocks else (EMPTY, EMPTY)
        kernel.costs(cluster.replicas, row, NONE_BLOCKED, live, cached, now, self.prefix_weight, out)
        return out

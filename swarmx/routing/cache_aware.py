"""Longest cached prefix, unless the load is out of balance: the rule of today's cache-aware gateways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.placement import Array, outstanding
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class CacheAware:
    """The replica that holds most of the prompt, if that is more than a share of it; else the least loaded.

    gap, ratio : out of balance when the largest load is over `ratio` times and more than `gap` calls above the least;
        then the prefix does not count. 16 and 1.5 are tuned values; the gateway's defaults are 64 and 1.5
    match : share of the prompt from which on a match counts
    Load is calls / relative speed, so on mixed hardware this is stronger than the original, which counts calls; and
    where that sends a miss to the smallest tree, however full, this sends it to the least loaded. After the cache_aware
    policy of SGLang's model gateway.
    """

    gap: float = 16.0
    ratio: float = 1.5
    match: float = 0.5

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        speed = cluster.speeds / cluster.speeds.mean()
        load = outstanding(cluster) / speed
        fallback: Array = (outstanding(cluster) + 1) / speed
        blocks = waiting.call.prefix_blocks
        most, least = float(load[usable].max()), float(load[usable].min())
        if not blocks or (most - least > self.gap and most > self.ratio * least):
            return fallback
        held = np.where(usable, cluster.prefix.cached(blocks), 0.0)
        longest = float(held.max())
        if longest < self.match * max(waiting.call.prompt_tokens, 1):
            return fallback
        return np.where(held == longest, fallback, np.inf)

"""Round robin in proportion to speed, as evenly spread as a sequence without memory can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class WeightedRoundRobin:
    """Replicas in turn, each as often as its configured speed is large.

    The i-th start goes where the fraction of i times the golden ratio falls on the line of the usable replicas' shares.
    The turns of one replica then come at two or three distances, so its arrivals are about as regular as they can be,
    and every share is kept within a few calls over any stretch. Nothing is remembered besides the number of starts.
    Itai and Rosberg (1984), A Golden Ratio Control Policy for a Multiple-Access Channel.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        share = np.where(usable, cluster.speeds, 0.0)
        ends = np.cumsum(share) / share.sum()
        place = (0.5 + cluster.starts * GOLDEN) % 1.0
        turn = min(int(np.searchsorted(ends, place, side="right")), usable.size - 1)
        return ((np.arange(usable.size) - turn) % usable.size).astype(np.float64)

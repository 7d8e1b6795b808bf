"""Idle replicas first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.routing.counts import PowerOfTwo
from swarmx.routing.placement import Array, outstanding
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class JoinIdle:
    """The fastest idle replica; when none is idle, the emptier of two drawn at random.

    idle_fill : a replica is idle while at most this share of its slots is taken; 0, the original rule, means empty
    Lu et al. (2011), Join-Idle-Queue; drawing two instead of one when nobody is idle is its JIQ-SQ(2).
    """

    idle_fill: float = 0.0

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        fill = outstanding(cluster) / cluster.replicas[kernel.SLOTS]
        idle = usable & (fill <= self.idle_fill)
        if idle.any():
            return np.where(idle, 1 / cluster.speeds, np.inf)
        return PowerOfTwo().costs(waiting, cluster, usable, now, rng)

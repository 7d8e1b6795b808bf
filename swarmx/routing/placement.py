"""The contract of a placement policy."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.state import ClusterState
from swarmx.waiting import Waiting

Array = NDArray[np.float64]


class Placement(Protocol):
    """Says what a call would cost on each replica of its pool."""

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        """(R,) lower is better, infinite where the policy does not want it.

        usable : (R,) replicas that may serve this call now; the others are never chosen, whatever they cost
        """
        ...


def outstanding(cluster: ClusterState) -> Array:
    """(R,) calls on each replica, running or queued, ours and others'."""
    total: Array = cluster.replicas[kernel.MINE] + cluster.replicas[kernel.OTHER]
    return total

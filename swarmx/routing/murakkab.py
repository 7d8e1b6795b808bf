"""Average service times per call type, no prompt signal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.routing.counts import LeastOutstandingPerSpeed
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Murakkab:
    """Least sum of the mean service times of what is outstanding there and of the call itself.

    Means are per call type and device, as profiled; they do not change while a call runs. A replica with s slots works
    on s calls at once. After the profile-based baseline of arXiv 2508.18298.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        if not cluster.is_fitted:
            return LeastOutstandingPerSpeed().costs(waiting, cluster, usable, now, rng)
        table, flights = cluster.replicas, cluster.flight_table()
        backlog = np.bincount(
            flights[:, kernel.F_REPLICA].astype(np.intp),
            weights=flights[:, kernel.F_MEAN],
            minlength=usable.size,
        )
        slots = table[kernel.SLOTS]
        tau = table[kernel.A] + table[kernel.B] * slots
        return np.asarray(tau * (backlog / slots + waiting.lengths.mean) + table[kernel.P] * waiting.call.prompt_tokens)

"""Memory as the load signal: right where the KV cache is what limits the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class LeastKvTokens:
    """Least (KV tokens held there + the call's need) / configured speed.

    Held is what the replica reports, or our book where that says more; need is the prompt that is not held there by
    running calls and half of the mean answer so far.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        cluster.refresh(now)
        blocks = waiting.call.prefix_blocks
        live = cluster.prefix.live(blocks) if blocks else 0.0
        need = waiting.call.prompt_tokens - live + waiting.lengths.mean / 2
        return np.asarray((cluster.replicas[kernel.KV] + need) / cluster.speeds)

"""The schedulers of one pool, all writing into one book.

The owner is the preset that the user chose and may hold calls back. Beside it stand two that answer at once: `at_once`
for a call whose time budget is over or that may go to a few endpoints only, and `standby` for a picker that does not
own the queue: two random choices, which herd least when what is known of the others' calls is old. All three share
`cluster`, observed lengths and the guard, so a call counts once, wherever it was bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.presets import preset
from swarmx.routing.placement import Array, Placement, outstanding
from swarmx.scheduler import Scheduler
from swarmx.state import ClusterState
from swarmx.waiting import Waiting

Allowed = frozenset[str] | None  # addresses that a call may go to; None for all


@dataclass(slots=True)
class Within:
    """A placement that keeps to the replicas allowed for the call in hand."""

    placement: Placement
    allowed: Allowed = None

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        """As the wrapped placement's, infinite outside; least outstanding where that leaves nothing."""
        if self.allowed is None:
            return self.placement.costs(waiting, cluster, usable, now, rng)
        inside = usable & np.array([state.id in self.allowed for state in cluster.states])
        costs = np.where(inside, self.placement.costs(waiting, cluster, inside, now, rng), np.inf)
        if np.isfinite(costs).any():
            return costs
        return np.where(inside, outstanding(cluster), np.inf)


@dataclass
class Lanes:
    """preset, options : of the owner, as in `swarmx.presets.preset`"""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.owner = preset(self.name, self.seed, **self.options)
        self.at_once = self._beside("push" if self.owner.parts.learns else self.name)
        self.standby = self._beside("power_of_two")

    @property
    def holds(self) -> bool:
        """Whether the owner may keep a call waiting."""
        return self.owner.parts.binding == "late"

    @property
    def cluster(self) -> ClusterState:
        return self.owner.cluster

    def usable(self, allowed: Allowed) -> list[str]:
        """Addresses that may take a call now, emptiest first (calls there per slot)."""
        cluster = self.cluster
        table = cluster.replicas
        fill = outstanding(cluster) / np.maximum(table[kernel.SLOTS], 1)
        ids = [cluster.states[i].id for i in np.argsort(fill, kind="stable") if table[kernel.USABLE, i] > 0]
        return ids if allowed is None else [name for name in ids if name in allowed]

    def waiting_per_replica(self) -> float:
        """Calls beyond the slots of all usable replicas, per usable replica."""
        table = self.cluster.replicas
        usable = table[kernel.USABLE] > 0
        over = np.maximum(outstanding(self.cluster) - table[kernel.SLOTS], 0)
        return float(over[usable].sum() / max(1, usable.sum()))

    def restrict(self, lane: Scheduler, allowed: Allowed) -> None:
        """Set where the next call of this lane may go."""
        assert isinstance(lane.parts.placement, Within)
        lane.parts.placement.allowed = allowed

    def _beside(self, name: str) -> Scheduler:
        lane = preset(name if not _is_late(name) else "least_outstanding_per_speed", self.seed + 1)
        lane.parts = replace(lane.parts, placement=Within(lane.parts.placement))
        lane.fit, lane.cluster = self.owner.fit, self.owner.cluster
        own, intake = self.owner.intake, lane.intake
        intake.observed, intake.trust, intake.tiers = own.observed, own.trust, own.tiers
        return lane


def _is_late(name: str) -> bool:
    return preset(name).parts.binding == "late"

"""What a whole scheduler is put together from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from swarmx.admission import Admission
from swarmx.late import LateWalk
from swarmx.migration import Migration, Stealing
from swarmx.ordering import Aging, LaneOrder, Order
from swarmx.pacing import Pacing
from swarmx.preemption import Preemption
from swarmx.reserve import Reserve
from swarmx.routing.placement import Placement
from swarmx.types import Priority, Source


@dataclass(frozen=True, slots=True)
class Combination:
    """What a preset names: how calls are ordered, bound and placed, and which predictions it may use.

    binding, late : "late" without a walk keeps calls until some replica is free and takes the cheapest of those; with a
        walk it looks ahead
    tier, own_of, sd_weight, level : see `swarmx.intake.Intake`
    refuse_s : how long a replica that refused a call is not asked again for it
    aging : the starvation tier of late binding; None has none, unless the order asks for one
    learns : whether finished calls feed the service model; placements that only count do without
    preemption, migration, stealing : None lets every call end where it was started
    inherits : whether calls take the class of the workflows that wait for them
    admission : who is let in; the default lets in everybody
    classes : call type or tenant -> class, in the place of what the call says; the type counts first
    reserve : slots or replicas that are kept for better classes; None keeps none
    pacing : limits of starts, and pauses after refusals; None has none but refuse_s
    block_tokens : size of the blocks that `Call.prefix_blocks` hashes
    """

    placement: Placement
    order: Order | LaneOrder
    binding: Literal["immediate", "late"] = "immediate"
    late: LateWalk | None = None
    tier: Source = "neural"
    own_of: Literal["mean", "mean_sd", "quantile"] = "mean"
    sd_weight: float = 0.5
    level: float = 0.95
    refuse_s: float = 1.0
    learns: bool = True
    block_tokens: int = 64
    aging: Aging | None = None
    preemption: Preemption | None = None
    migration: Migration | None = None
    stealing: Stealing | None = None
    inherits: bool = False
    admission: Admission = field(default_factory=Admission)
    classes: Mapping[str, Priority] = field(default_factory=dict)
    reserve: Reserve | None = None
    pacing: Pacing | None = None

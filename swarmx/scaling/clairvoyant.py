"""Our rule with the future known: the bound that a better forecast could reach. Simulation alone."""

from __future__ import annotations

from swarmx.scaling.tail_demand import TailDemand


def clairvoyant(level: float = 0.5, fill: float = 1.0, catch_up_s: float | None = None) -> TailDemand:
    """`TailDemand` on the sample's oracle demand, whose distributions are points."""
    return TailDemand(level, fill, catch_up_s, "oracle")

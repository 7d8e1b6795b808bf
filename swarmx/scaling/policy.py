"""What a scaling policy is."""

from __future__ import annotations

from math import ceil
from typing import Protocol

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.samples import PoolSample


class ScalingPolicy(Protocol):
    """Says how many replicas it wants; a pure function of the sample and of the pool's recent past."""

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        """Replicas wanted, unbounded; None when a metric that it needs is missing, so that the pool is held."""


def whole(replicas: float) -> int:
    """Rounded up, but not for a rounding error above a whole number."""
    return max(ceil(replicas - 1e-9), 0)

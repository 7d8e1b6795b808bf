"""As many replicas as was said."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class Fixed:
    """replicas : None keeps what is there"""

    replicas: int | None = None

    def wants(self, sample: PoolSample, history: History) -> Want:
        return Want(sample.committed if self.replicas is None else self.replicas, "fixed")

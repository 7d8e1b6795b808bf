"""What a scaler sees: one sample per pool and period. None stands for a metric that is missing; so does nan."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from swarmx.scaling.demand import PoolDemand

Stage = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica of a pool.

    in_flight : calls bound to it, on their way included; slots : calls that it runs at once within its latency limit
    ready_in_s : for a starting replica, when it is expected to be ready
    work_s : slot-seconds that its calls still need; price : cost of one replica-second
    latency_ratio : estimated latency of a call there over the limit
    """

    id: str
    stage: Stage = "ready"
    in_flight: int = 0
    slots: int = 1
    speed: float = 1.0
    device: str = "default"
    ready_in_s: float = 0.0
    work_s: float = 0.0
    price: float = 1.0
    latency_ratio: float | None = None

    @property
    def capacity(self) -> float:
        """Slots at the pool's mean speed."""
        return self.slots * self.speed


@dataclass(frozen=True, slots=True)
class PoolSample:
    """The state of one pool at one time.

    waiting, running : calls that no replica has started, and calls that one has
    arrived, finished : counters since some start; they may begin again at 0
    service_s : mean seconds for which a call holds a slot
    latency_ratio : 90 % quantile of the estimated latency of recent calls over its limit
    judged, kept : counters of calls that ended, and of those that ended within their limit
    demand : what live work and arrivals will need; oracle : the same with the future known (simulation alone)
    cold_s : from the order of a replica until it is ready
    """

    pool: str
    observed_s: float
    replicas: tuple[ReplicaView, ...] = ()
    waiting: float | None = None
    running: float | None = None
    arrived: float | None = None
    finished: float | None = None
    service_s: float | None = None
    latency_ratio: float | None = None
    judged: float | None = None
    kept: float | None = None
    demand: PoolDemand | None = None
    oracle: PoolDemand | None = None
    cold_s: float = 60.0

    def count(self, stage: Stage) -> int:
        """Replicas in this stage."""
        return sum(r.stage == stage for r in self.replicas)

    @property
    def committed(self) -> int:
        """Replicas that serve or will serve: ready and starting ones."""
        return sum(r.stage != "draining" for r in self.replicas)

    @property
    def slots(self) -> float:
        """Mean capacity of a committed replica in slots; of any replica when none is committed; 1 without replicas."""
        views = [r for r in self.replicas if r.stage != "draining"] or list(self.replicas)
        return sum(r.capacity for r in views) / len(views) if views else 1.0

    @property
    def busy(self) -> float | None:
        """Calls in the pool, or None where that is not known."""
        waiting, running = known(self.waiting), known(self.running)
        return None if waiting is None or running is None else waiting + running


def known(value: float | None) -> float | None:
    """The value, or None when it is missing, not finite or negative."""
    return value if value is not None and isfinite(value) and value >= 0 else None

"""The replicas of one model and the routers in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from swarmx.sim.contracts import SimulatedScheduler
from swarmx.sim.job import Job
from swarmx.sim.replicas import Replica


class Router:
    """One scheduler object, and the calls that it knows of and that have not ended."""

    __slots__ = ("jobs", "pool", "scheduler", "ticking")

    def __init__(self, scheduler: SimulatedScheduler, pool: Pool) -> None:
        self.scheduler = scheduler
        self.pool = pool
        self.jobs: dict[str, Job] = {}
        self.ticking = False


class Pool:
    """periods : names of the periodic reports that are under way"""

    def __init__(self, replicas: Sequence[Replica], schedulers: Sequence[SimulatedScheduler]) -> None:
        self.replicas = {r.spec.id: r for r in replicas}
        self.routers = [Router(s, self) for s in schedulers]
        self.periods: set[str] = set()

    @property
    def is_quiet(self) -> bool:
        return not any(router.jobs for router in self.routers)

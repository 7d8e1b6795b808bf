"""Policies that see counts alone: no prediction, no learned speed. They are the baselines that people run today."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.placement import Array, outstanding
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class RandomReplica:
    """Any usable replica, uniformly."""

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        return rng.random(usable.size)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Replicas in turn: the next after as many steps as calls were started."""

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        return ((np.arange(usable.size) - cluster.starts) % usable.size).astype(np.float64)


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """The one with fewer calls of two distinct usable replicas drawn at random.

    Mitzenmacher (2001), The Power of Two Choices in Randomized Load Balancing.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        candidates = np.flatnonzero(usable)
        drawn = rng.choice(candidates, size=min(2, candidates.size), replace=False)
        costs = np.full(usable.size, np.inf)
        costs[drawn] = outstanding(cluster)[drawn]
        return costs


@dataclass(frozen=True, slots=True)
class LeastOutstanding:
    """Fewest calls, running or queued (join the shortest queue)."""

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        return outstanding(cluster)


@dataclass(frozen=True, slots=True)
class LeastOutstandingPerSpeed:
    """Least (calls + 1) / configured speed: least expected delay when all calls are alike (LED).

    The reference of every comparison here: the best that counts and known speeds can do.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        return (outstanding(cluster) + 1) / cluster.speeds

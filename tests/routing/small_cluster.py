"""Replicas, a book and a waiting call, as a placement sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants, OnlineFit
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.routing import Placement
from swarmx.state import ClusterState
from swarmx.types import Call, Prediction, ReplicaState
from swarmx.waiting import Waiting, lengths_of

ENGINE = EngineConstants(0.01, 0.001, 1e-7, 1e-4)


def waiting(
    name: str = "new",
    tokens: float = 100.0,
    prompt: int = 200,
    blocks: tuple[int, ...] = (),
    workflow: str = "",
    spread: float = 0.0,
) -> Waiting:
    """A call whose length is `tokens` on average; spread 0 knows it exactly, 1 is exponential."""
    grid = QuantileGrid(LEVELS, tokens * ((1 - spread) - spread * np.log(1 - LEVELS)))
    call = Call(name, "m", 0.0, prompt_tokens=prompt, prefix_blocks=blocks, workflow_id=workflow)
    return Waiting(call, Prediction(grid), lengths_of(grid, None), (1, 0.0, 0.0, name), 0.0)


def cluster_of(
    speeds: Sequence[float],
    calls: Sequence[int] | None = None,
    slots: int = 4,
    tokens: float = 100.0,
    known: bool = True,
    kv: int = 100_000,
) -> ClusterState:
    """Replicas of these speeds with so many equal calls in flight; engines that are not `known` are still to learn."""
    kinds = {f"x{v:g}": ENGINE.at_speed(v) for v in speeds}
    cluster = ClusterState(OnlineFit(kinds if known else None))
    cluster.set_replicas(
        [ReplicaState(f"r{i}", "m", f"x{v:g}", slots, kv_capacity_tokens=kv, speed=v) for i, v in enumerate(speeds)],
        0.0,
    )
    for i, count in enumerate(calls or ()):
        for k in range(count):
            one = waiting(f"old{i}.{k}", tokens)
            cluster.start(one.call, one.lengths, i, 0.0)
    return cluster


def costs(
    placement: Placement, one: Waiting, cluster: ClusterState, usable: Sequence[bool] | None = None, seed: int = 0
) -> NDArray[np.float64]:
    mask = np.ones(len(cluster.states), dtype=np.bool_) if usable is None else np.array(usable)
    return placement.costs(one, cluster, mask, 0.0, np.random.default_rng(seed))


def chosen(
    placement: Placement, one: Waiting, cluster: ClusterState, usable: Sequence[bool] | None = None, seed: int = 0
) -> int:
    """The cheapest usable replica."""
    found = costs(placement, one, cluster, usable, seed)
    mask = np.ones(found.size, dtype=np.bool_) if usable is None else np.array(usable)
    return int(np.argmin(np.where(mask, found, np.inf)))

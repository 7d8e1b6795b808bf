"""The paper's shape: compose each hypothetical action with the pool's demand grid, take the cheapest by tail cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swarmx.quantiles import QuantileGrid, tail_cost
from swarmx.scaling.decisions import Want
from swarmx.scaling.demand import grid_of_moments
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample
from swarmx.scaling.tail_demand import counted_demand


@dataclass(frozen=True, slots=True)
class SwarmX:
    """An action is a replica count; its cost is the tail of the work that then overflows the horizon, plus its price.

    The horizon ends one cold start and one window from now.
    tail, level : functional of the overflow's distribution; penalty : price of a slot-second of it, in slot-seconds of
        a replica
    """

    tail: str = "cvar"
    level: float = 0.95
    penalty: float = 4.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        demand = sample.demand or counted_demand(sample, history)
        if demand is None:
            return None
        end = min(sample.cold_s + float(demand.widths_s[0]), float(demand.edges_s[-1]))
        mean, variance = demand.work(end)
        grid = grid_of_moments(np.asarray(mean), np.asarray(variance))
        most = whole(float(grid.values[-1]) / (sample.slots * end)) + 1
        capacity = np.arange(most + 1) * sample.slots * end  # (actions,)
        overflow = QuantileGrid(grid.levels, np.maximum(grid.values - capacity[:, None], 0.0))  # (actions, K)
        costs = capacity + self.penalty * tail_cost(overflow, self.tail, self.level)
        chosen = int(np.argmin(costs))
        return Want(
            chosen, "tail cost of actions", {"mean_work_s": mean, "horizon_s": end, "cost": float(costs[chosen])}
        )

"""The paper's router: each replica's backlog as a distribution, the call composed into it, a tail cost of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.quantiles import LEVELS, QuantileGrid, compose, condition_on_age, tail_cost
from swarmx.routing.counts import LeastOutstandingPerSpeed
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Composed:
    """Tail cost of (backlog of the replica + the call), in seconds, over a sampled subset of candidates.

    composition : "comonotone", "independent" or a correlation in [0, 1]
    functional, level : tail cost as in `swarmx.quantiles.tail_cost`
    candidates : how many replicas are drawn, with probability falling in their cost (softmax of -cost / median cost);
        None looks at all
    age_conditioned : whether the backlog of a running call is what is left of it given its age, or its whole length
    After arXiv 2606.21401, whose formulas are not public: a reading of its description, not its code.
    """

    composition: str | float = "comonotone"
    functional: str = "quantile"
    level: float = 0.95
    candidates: int | None = None
    age_conditioned: bool = False

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        if self.age_conditioned:
            cluster.refresh(now)
        if not cluster.is_fitted:
            return LeastOutstandingPerSpeed().costs(waiting, cluster, usable, now, rng)
        table = cluster.replicas
        slots = table[kernel.SLOTS]
        tau = table[kernel.A] + table[kernel.B] * slots
        backlog = self._backlog(cluster, usable.size)  # (R, K) tokens
        seconds = QuantileGrid(LEVELS, np.maximum.accumulate(backlog * (tau / slots)[:, None], axis=-1))
        prefill = table[kernel.P] * waiting.call.prompt_tokens
        own = QuantileGrid(LEVELS, tau[:, None] * waiting.lengths.grid[None, :] + prefill[:, None])
        how = self.composition
        if isinstance(how, str) and how not in ("comonotone", "independent"):
            raise ValueError(f"unknown composition {how!r}; choose comonotone, independent or a correlation in [0, 1]")
        costs = tail_cost(compose(seconds, own, how), self.functional, self.level)  # type: ignore[arg-type]
        return costs if self.candidates is None else self._sampled(costs, usable, rng)

    def _backlog(self, cluster: ClusterState, replicas: int) -> Array:
        """(R, K) output tokens outstanding on each replica, composed call by call."""
        flights = cluster.flight_table()
        grids = flights[:, kernel.FLIGHT_COLUMNS :]
        if self.age_conditioned and len(flights):
            grids = condition_on_age(QuantileGrid(LEVELS, grids), _ages(flights)).values
        total = np.zeros((replicas, LEVELS.size))
        where = flights[:, kernel.F_REPLICA].astype(np.intp)
        if self.composition in ("comonotone", 1, 1.0):
            np.add.at(total, where, grids)
            return total
        for i, r in enumerate(where):
            pair = compose(QuantileGrid(LEVELS, total[r]), QuantileGrid(LEVELS, grids[i]), self.composition)  # type: ignore[arg-type]
            total[r] = pair.values
        return total

    def _sampled(self, costs: Array, usable: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        index = np.flatnonzero(usable)
        count = min(int(self.candidates or index.size), index.size)
        scale = max(float(np.median(costs[index])), 1e-12)
        weight = np.exp(-(costs[index] - costs[index].min()) / scale)
        drawn = rng.choice(index, size=count, replace=False, p=weight / weight.sum())
        out = np.full(costs.size, np.inf)
        out[drawn] = costs[drawn]
        return out


def _ages(flights: Array) -> Array:
    """(calls,) output tokens so far, as extrapolated by the last refresh: need = prompt + (age + rest) / 2."""
    ages: Array = 2 * (flights[:, kernel.F_NEED] - flights[:, kernel.F_PROMPT]) - flights[:, kernel.F_REST]
    return np.maximum(ages, 0.0)

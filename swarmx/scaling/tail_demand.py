"""Replicas for a quantile of the work that is coming, over the time that a new replica takes to start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.decisions import Want
from swarmx.scaling.demand import PoolDemand, demand_of_counts
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample, known

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TailDemand:
    """Demand is backlog + age-conditioned work in service + downstream calls of live workflows + arrivals.

    For each window from now to a cold start ahead and a little beyond, the `level` quantile of its busy slots, and what
    the replicas that will be ready by then leave over from the windows before. What falls after the cold start is
    ordered; what falls before it can only be kept.

    level : quantile of demand that must fit; fill : share of the slots to plan for
    catch_up_s : a backlog is worked off within this time (None: within one window)
    use : "demand", or "oracle" for the clairvoyant
    """

    level: float = 0.95
    fill: float = 1.0
    catch_up_s: float | None = None
    use: Literal["demand", "oracle"] = "demand"

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        demand = sample.oracle if self.use == "oracle" else sample.demand
        source = "live work"
        if demand is None:
            demand, source = counted_demand(sample, history), "counts"
        if demand is None:
            return None
        needed, capacity = self._needed(demand, sample)
        ordered = demand.window_at(sample.cold_s)
        kept = np.minimum(needed[:ordered], capacity[:ordered])
        slots = float(max(needed[ordered:].max(), kept.max(initial=0.0)))
        terms: dict[str, float | tuple[float, ...]] = {
            name: tuple((part / demand.widths_s).tolist()) for name, part in demand.mean.items()
        }
        terms["needed"], terms["capacity"] = tuple(needed.tolist()), tuple(capacity.tolist())
        terms["slots_per_replica"] = sample.slots
        latest = int(np.argmax(needed[ordered:])) + ordered
        when = f"{demand.edges_s[latest]:.0f} to {demand.edges_s[latest + 1]:.0f} s from now"
        return Want(whole(slots / (sample.slots * self.fill)), f"demand from {source}, most of it {when}", terms)

    def _needed(self, demand: PoolDemand, sample: PoolSample) -> tuple[Array, Array]:
        """(J,) slots that each window needs, and slots that will be ready in it."""
        busy, widths = demand.at(self.level), demand.widths_s
        capacity = ready_slots(sample, demand.edges_s) * self.fill
        needed, over, enough = np.zeros(busy.size), 0.0, 0.0
        for j, width in enumerate(widths):
            needed[j] = busy[j] + over / max(self.catch_up_s or width, width)
            if demand.edges_s[j] >= sample.cold_s - 1e-9:
                enough = max(enough, needed[j])
            over = max(over + demand.total[j] - max(capacity[j], enough) * width, 0.0)
        return needed, capacity


def left_over(demand: PoolDemand, capacity: Array, until: int) -> float:
    """Slot-seconds of mean demand that these slots (J,) have not served when window `until` begins."""
    over = 0.0
    for j in range(until):
        over = max(over + float(demand.total[j]) - float(capacity[j] * demand.widths_s[j]), 0.0)
    return over


def ready_slots(sample: PoolSample, edges_s: Array) -> Array:
    """(J,) slots on average over each window, of ready replicas and of starting ones from when they will be ready."""
    widths = np.diff(edges_s)
    total = np.zeros(widths.size)
    for view in sample.replicas:
        if view.stage != "draining":
            start = view.ready_in_s if view.stage == "starting" else 0.0
            total += view.capacity * np.clip((edges_s[1:] - start) / widths, 0.0, 1.0)
    return total


def counted_demand(sample: PoolSample, history: History, rate_s: float = 60.0, windows: int = 6) -> PoolDemand | None:
    """Demand from counters alone, where nobody follows live work; None when they are missing."""
    found, service, busy = history.increase("arrived", rate_s), known(sample.service_s), sample.busy
    if busy is None or sample.waiting is None or sample.running is None:
        return None
    if service is None or found is None or found[1] <= 0:
        return None
    edges = np.linspace(0.0, 1.5 * max(sample.cold_s, 1.0), windows + 1)
    count, seconds = found
    return demand_of_counts(edges, sample.waiting, sample.running, service, count / seconds, count / seconds**2)

"""The future as it would be without queueing: what the clairvoyant scaler is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.demand import PoolDemand
from swarmx.sim.flows import Flow
from swarmx.sim.job import Job
from swarmx.sim.pool import Pool
from swarmx.sim.workload import SimCall, SimWorkflow, Workload

Array = NDArray[np.float64]
Seconds = Callable[[SimCall], float]


class TrueDemand:
    """Live workflows follow their true graph from where they are; later ones arrive when they will.

    seconds : true service time of a call; edges_s : windows of the demand
    """

    def __init__(self, workload: Workload, seconds: Seconds, edges_s: Array) -> None:
        self.seconds, self.edges_s = seconds, edges_s
        self.arrivals = np.array([w.arrival_s for w in workload.workflows])
        self._ended: dict[int, dict[int, float]] = {}
        self._flows: dict[int, Flow] = {}
        busy = [(c.model, s, e) for w in workload.workflows for c, s, e in ideal(w, seconds)]
        first = np.repeat(self.arrivals, [len(w.calls) for w in workload.workflows])
        self._future = {
            m: np.array([(a, s, e) for a, (k, s, e) in zip(first, busy, strict=True) if k == m])
            for m in {k for k, _, _ in busy}
        }

    def __call__(self, pools: Mapping[str, Pool], now: float) -> Mapping[str, PoolDemand]:
        live: dict[str, list[tuple[float, float]]] = {model: [] for model in pools}
        jobs: dict[int, dict[int, Job]] = {}
        for pool in pools.values():
            for router in pool.routers:
                for job in router.jobs.values():
                    self._flows[job.flow.index] = job.flow
                    jobs.setdefault(job.flow.index, {})[job.place] = job
        for index in list(self._flows):
            if not self._follow(index, jobs.get(index, {}), now, live):
                del self._flows[index]
                self._ended.pop(index, None)
        return {model: self._demand(model, live[model], now) for model in pools}

    def _follow(
        self, index: int, jobs: Mapping[int, Job], now: float, live: dict[str, list[tuple[float, float]]]
    ) -> bool:
        """Add the busy intervals, from now, of what the workflow still holds; False when it holds nothing."""
        flow = self._flows[index]
        seen = self._ended.setdefault(index, {})
        ends: list[float] = []
        left = False
        for place, call in enumerate(flow.workflow.calls):
            job, length = jobs.get(place), self.seconds(call)
            if job is not None:
                seen[place] = np.inf
                running = job.started_s == job.started_s
                end = max(job.started_s + length - now, 0.0) if running else length
                start = 0.0
            elif seen.get(place) == np.inf or (place in seen):  # it was here and has ended
                seen[place] = min(seen[place], now)
                ends.append(seen[place] - now)
                continue
            else:
                start = max(max((ends[p] for p in call.parents), default=0.0) + call.delay_s, 0.0)
                end = start + length
            left = True
            live[call.model].append((start, end))
            ends.append(end)
        return left

    def _demand(self, model: str, live: list[tuple[float, float]], now: float) -> PoolDemand:
        edges, zero = self.edges_s, np.zeros(self.edges_s.size - 1)
        found = _overlap(np.array(live).reshape(-1, 2), edges)
        future = self._future.get(model, np.zeros((0, 3)))
        low, high = np.searchsorted(future[:, 0], [now, now + edges[-1]], side="right")
        later = _overlap(future[low:high, 1:] - now, edges)
        return PoolDemand(edges, {"downstream": found, "arrivals": later}, {"downstream": zero, "arrivals": zero})


def ideal(workflow: SimWorkflow, seconds: Seconds) -> list[tuple[SimCall, float, float]]:
    """(call, start, end) of every call when nothing queues."""
    out: list[tuple[SimCall, float, float]] = []
    for call in workflow.calls:
        start = max((out[p][2] for p in call.parents), default=workflow.arrival_s) + call.delay_s
        out.append((call, start, start + seconds(call)))
    return out


def _overlap(intervals: Array, edges: Array) -> Array:
    """(J,) summed seconds of the intervals (n, 2) inside each window."""
    begin, end = intervals[:, :1], intervals[:, 1:]
    return np.asarray(np.maximum(np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1]), 0.0).sum(axis=0))

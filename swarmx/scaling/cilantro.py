"""Learn from feedback what load a replica bears, with confidence bounds; no model of the service."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import INDEX, History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class Cilantro:
    """Load is calls in the pool per slot; it is met with as few replicas as were seen to keep `attainment`.

    Samples are put into bins of load; each bin keeps a share of calls within limit. The bound is pessimistic
    (lower confidence bound) so that a guarantee holds; bins without samples inherit from lower ones, and a load above
    everything tried is not trusted.
    Bhardwaj et al. (2023), Cilantro: Performance-Aware Resource Allocation.
    """

    attainment: float = 0.95
    bins: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)
    start: float = 0.7
    window_s: float = 30.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        if sample.busy is None:
            return None
        busy = history.window(self.window_s)
        calls = float(np.nanmean(busy[:, INDEX["waiting"]] + busy[:, INDEX["running"]]))
        bearable = self._bearable(history.window(history.keep_s), sample.slots)
        return Want(whole(calls / (bearable * sample.slots)), "feedback", {"bearable": bearable, "calls": calls})

    def _bearable(self, rows: NDArray[np.float64], slots: float) -> float:
        """Largest load whose lower bound of attainment keeps the goal."""
        judged = np.maximum(np.diff(rows[:, INDEX["judged"]]), 0.0)
        kept = np.maximum(np.diff(rows[:, INDEX["kept"]]), 0.0)
        calls = rows[1:, INDEX["waiting"]] + rows[1:, INDEX["running"]]
        load = calls / np.maximum(rows[1:, INDEX["ready"]] * slots, 1e-9)
        good = np.isfinite(judged) & np.isfinite(kept) & np.isfinite(load)
        edges = np.array(self.bins)
        place = np.minimum(np.searchsorted(edges, load[good]), edges.size - 1)
        n = np.bincount(place, weights=judged[good], minlength=edges.size)
        k = np.bincount(place, weights=kept[good], minlength=edges.size)
        bearable, tried = 0.0, False
        for edge, count, within in zip(edges, n, k, strict=True):
            if count < 30:
                continue
            tried = True
            lower = within / count - 1.0 / np.sqrt(count)
            if lower < self.attainment - 0.05:
                break
            bearable = float(edge)
        if not tried:
            return self.start
        return min(max(bearable, self.bins[0]), 1.0)

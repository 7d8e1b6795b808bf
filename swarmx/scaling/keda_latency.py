"""The llm-d law: KEDA on the 90 % quantile of predicted latency over its limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import INDEX, History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class KedaLatency:
    """Saturation s = mean over 45 s of min(P90 latency / limit, 2). Above 0.55: desired · s/0.55, credited with the
    share of desired replicas that is ready; below 0.40: desired · s/0.40; between: hold. No traffic reads as 0.
    """

    up: float = 0.55
    down: float = 0.40
    clamp: float = 2.0
    window_s: float = 45.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        rows = history.window(self.window_s)
        ratios = rows[:, INDEX["latency_ratio"]]
        ratios = np.where(np.isnan(ratios) & (rows[:, INDEX["running"]] == 0), 0.0, ratios)
        ratios = ratios[np.isfinite(ratios)]
        if not ratios.size:
            return None
        saturation = float(np.minimum(ratios, self.clamp).mean())
        desired, terms = sample.committed, {"saturation": saturation}
        if saturation > self.up:
            credit = sample.count("ready") / desired if desired else 1.0
            return Want(max(whole(desired * saturation / self.up * credit), desired, 1), "saturation above band", terms)
        if saturation < self.down:
            return Want(whole(desired * saturation / self.down), "saturation below band", terms)
        return Want(desired, "saturation inside band", terms)

"""Two loops: a floor from the request rate, and single steps when all replicas break or easily keep their limit."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample, known


@dataclass(frozen=True, slots=True)
class ThroughputAndLoad:
    """The shape of the Dynamo planner.

    Throughput: rate over `rate_s` times mean service over slots at `fill`. Load: one more when every replica's
    estimated latency is above its limit, one fewer when every one is below `easy` of it. The floor binds both.
    """

    rate_s: float = 180.0
    fill: float = 0.9
    easy: float = 0.8

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        rate, service = history.rate("arrived", self.rate_s), known(sample.service_s)
        if rate is None or service is None or sample.busy is None:
            return None
        floor = whole(rate * service / (sample.slots * self.fill))
        ratios = [known(r.latency_ratio) for r in sample.replicas if r.stage == "ready"]
        now, terms = sample.committed, {"floor": float(floor), "rate": rate}
        if sample.busy == 0:  # nothing is there whose latency could be estimated
            ratios = [0.0]
        if not ratios or None in ratios:
            return Want(max(floor, now), "floor; latency of some replicas unknown", terms)
        loads = [r for r in ratios if r is not None]
        if min(loads) > 1:
            starting = now > sample.count("ready")  # one step at a time
            return Want(max(floor, now + (not starting)), "every replica above its limit", terms)
        if max(loads) < self.easy:
            return Want(max(floor, now - 1), "every replica well below its limit", terms)
        return Want(max(floor, now), "load inside band", terms)

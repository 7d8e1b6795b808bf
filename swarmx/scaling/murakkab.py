"""Mean demand over mean capacity: averages per model, nothing of the prompt, the tail or the call graph."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample, known


@dataclass(frozen=True, slots=True)
class Murakkab:
    """Arrival rate times mean service over slots at `fill`."""

    rate_s: float = 60.0
    fill: float = 0.8

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        rate, service = history.rate("arrived", self.rate_s), known(sample.service_s)
        if rate is None or service is None:
            return None
        busy = rate * service
        return Want(whole(busy / (sample.slots * self.fill)), "mean demand", {"demand": busy})

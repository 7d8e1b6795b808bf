"""The Kubernetes horizontal pod autoscaler on slot utilisation."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample, known


@dataclass(frozen=True, slots=True)
class Hpa:
    """ceil(ready · utilisation / target), nothing within the tolerance; a utilisation cannot exceed 1.

    target : wanted share of busy slots; window_s : over which utilisation is averaged
    """

    target: float = 0.7
    tolerance: float = 0.1
    window_s: float = 30.0

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        running, ready = history.mean("running", self.window_s), sample.count("ready")
        if running is None or known(sample.running) is None:
            return None
        if ready == 0:
            return Want(sample.committed or int(bool(sample.busy)), "nothing is ready")
        used = min(running / (ready * sample.slots), 1.0)
        ratio = used / self.target
        if abs(ratio - 1) <= self.tolerance:
            return Want(sample.committed, "within tolerance", {"utilisation": used})
        wanted = whole(ready * ratio)
        if ratio > 1:  # pods that start count as idle, so they damp a rise but never turn it into a fall
            wanted = max(wanted, sample.committed)
        return Want(wanted, "utilisation", {"utilisation": used})

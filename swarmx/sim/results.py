"""What a run leaves: one column per quantity, one row per call, and the figures that reports show."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from swarmx.sim.cluster import Cluster
from swarmx.sim.workload import Workload

if TYPE_CHECKING:
    from swarmx.sim.job import Job

Array = NDArray[np.float64]
STATUSES = ("unfinished", "ok", "rejected", "error")
PERCENTILES = (0.5, 0.95, 0.99)


class CallRows:
    """Where a run puts its calls as they end; `table` makes arrays of it without copying."""

    def __init__(self, calls: int) -> None:
        self._times = [array("d", [nan]) * calls for _ in range(6)]
        self._counts = [array("i", [default]) * calls for default in (0, -1, 0, 0)]

    def fill(self, job: Job, status: str, now: float) -> None:
        row = job.row
        arrival, dispatched, started, first_token, finished, tokens = self._times
        arrival[row] = job.call.arrival_s
        dispatched[row] = job.dispatched_s
        started[row] = job.started_s
        first_token[row] = job.first_token_s
        finished[row] = now
        tokens[row] = job.produced
        cached, replica, attempts, statuses = self._counts
        cached[row] = job.cached_tokens
        if job.replica is not None:
            replica[row] = job.replica.index
        attempts[row] = job.starts
        statuses[row] = 1 if status == "ok" else STATUSES.index(status)

    def table(self, workload: Workload, cluster: Cluster) -> CallTable:
        sizes = [len(w.calls) for w in workload.workflows]
        workflow = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        arrivals = np.array([w.arrival_s for w in workload.workflows])
        arrival, dispatched, started, first, finished, tokens = (np.frombuffer(c, np.float64) for c in self._times)
        cached, replica, attempts, status = (np.frombuffer(c, np.int32) for c in self._counts)
        return CallTable(
            workload, cluster, workflow, arrivals, arrival, dispatched, started, first, finished, tokens, cached,
            replica, attempts, status,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class CallTable:
    """One row per call, workflow by workflow as in the workload; times in seconds, nan for what did not happen.

    arrival_s : when it became known; dispatched_s : its last start decision; started_s : its replica began it;
    first_token_s, finished_s : as its router saw the end and its replica the first token; replica : place in the
    cluster, -1 if none; attempts : starts; status : place in `STATUSES`; workflow : place in the workload
    """

    workload: Workload
    cluster: Cluster
    workflow: NDArray[np.int32]
    workflow_arrival_s: Array
    arrival_s: Array
    dispatched_s: Array
    started_s: Array
    first_token_s: Array
    finished_s: Array
    output_tokens: Array
    cached_tokens: NDArray[np.int32]
    replica: NDArray[np.int32]
    attempts: NDArray[np.int32]
    status: NDArray[np.int32]

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.equal(self.status, STATUSES.index("ok"))

    def call_latency_s(self) -> Array:
        """Arrival to end of every call that ended well."""
        return (self.finished_s - self.arrival_s)[self.ok]

    def ttft_s(self) -> Array:
        """Arrival to first token of every call that ended well."""
        return (self.first_token_s - self.arrival_s)[self.ok]

    def wait_s(self) -> Array:
        """Arrival to start of service of every call that ended well."""
        return (self.started_s - self.arrival_s)[self.ok]

    def workflow_ok(self) -> NDArray[np.bool_]:
        """Which workflows ended with every call well, (workflows,)."""
        bad = np.bincount(self.workflow, weights=~self.ok, minlength=len(self.workload.workflows))
        return np.equal(bad, 0)

    def workflow_latency_s(self) -> Array:
        """Arrival to last end of every workflow that ended well."""
        last = np.full(len(self.workload.workflows), -np.inf)
        ended = ~np.isnan(self.finished_s)
        np.maximum.at(last, self.workflow[ended], self.finished_s[ended])
        return (last - self.workflow_arrival_s)[self.workflow_ok()]

    def cached_share(self) -> float:
        """Prompt tokens found in prefix caches, of all prompt tokens."""
        prompt = sum(c.prompt_tokens for c in self.workload.calls())
        return float(self.cached_tokens.sum()) / prompt if prompt else 0.0

    def figures(self, slo_s: Array | None = None) -> dict[str, float]:
        """The metrics of a report row, under "call_" and "workflow_": P50, P95, P99, and counts.

        slo_s : (workflows,) latency limit of each workflow; adds "slo_attainment"; a workflow that did not end well
            misses it
        """
        out: dict[str, float] = {}
        for level, values in (("call", self.call_latency_s()), ("workflow", self.workflow_latency_s())):
            for q, value in zip(PERCENTILES, percentiles(values), strict=True):
                out[f"{level}_p{round(100 * q)}_s"] = value
            out[f"{level}_mean_s"] = float(values.mean()) if values.size else float("nan")
            out[f"{level}_n"] = float(values.size)
        ttft = percentiles(self.ttft_s())
        out["ttft_p50_s"], out["ttft_p99_s"] = ttft[0], ttft[2]
        out["failed_calls"] = float((~self.ok).sum())
        if slo_s is not None:
            within = self.workflow_latency_s() <= slo_s[self.workflow_ok()]
            out["slo_attainment"] = float(within.sum()) / len(self.workload.workflows)
        return out


def percentiles(values: Array, levels: Sequence[float] = PERCENTILES) -> list[float]:
    """Empirical quantiles with linear interpolation; nan for an empty sample."""
    if not values.size:
        return [float("nan")] * len(levels)
    return [float(v) for v in np.quantile(values, levels)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ratio of a metric to its reference over paired seeds: geometric mean and 95 % interval. Below 1 is better."""

    ratio: float
    low: float
    high: float
    seeds: int


def compare(values: Sequence[float], reference: Sequence[float]) -> Comparison:
    """Paired by seed: t interval on the logarithms of the ratios. With one seed the interval is the whole half-line.

    Raises ValueError when the lengths differ, are zero, or a value is not positive and finite.
    """
    a, b = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(f"a paired comparison needs two lists of one length, got {a.shape} and {b.shape}")
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b)) and a.min() > 0 and b.min() > 0):
        raise ValueError("a paired comparison needs positive finite values")
    logs = np.log(a / b)
    mean = float(logs.mean())
    if logs.size == 1:
        return Comparison(exp(mean), 0.0, float("inf"), 1)
    half = t_975(logs.size - 1) * float(logs.std(ddof=1)) / sqrt(logs.size)
    return Comparison(exp(mean), exp(mean - half), exp(mean + half), int(logs.size))


def t_975(freedom: int) -> float:
    """0.975 quantile of Student's t, exact where tabulated, else Cornish-Fisher to 1e-3.

    Hill (1970), Algorithm 396; the table holds the first degrees, where the expansion is poor.
    """
    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {freedom}")
    table: Mapping[int, float] = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 5: 2.57058, 6: 2.44691}
    if freedom in table:
        return table[freedom]
    z, v = 1.959963984540054, float(freedom)
    return float(
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )

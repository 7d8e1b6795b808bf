"""What queueing theory says, to hold the simulator against, and the interval that a single long run has."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from swarmx.sim.results import t_975

Array = NDArray[np.float64]


def erlang_c(load: float, servers: int) -> float:
    """Probability that a call waits in M/M/c; load = arrival rate times mean service, in (0, servers)."""
    if not 0 < load < servers:
        raise ValueError(f"a stable queue needs 0 < load < {servers}, got {load}")
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)  # Erlang B by its recursion, which does not overflow
    return blocked / (1 - (load / servers) * (1 - blocked))


def mmc_wait_s(per_s: float, service_s: float, servers: int) -> float:
    """Mean wait before service in M/M/c, first come first served."""
    load = per_s * service_s
    return erlang_c(load, servers) * service_s / (servers - load)


def mg1_wait_s(per_s: float, service_s: float, cv: float) -> float:
    """Mean wait before service in M/G/1, whatever the order of service is. Pollaczek and Khinchine."""
    load = per_s * service_s
    if not 0 < load < 1:
        raise ValueError(f"a stable queue needs 0 < load < 1, got {load}")
    return load * service_s * (1 + cv**2) / (2 * (1 - load))


def batch_means(values: Array, batches: int = 20) -> tuple[float, float]:
    """(mean, half width of its 95 % interval) of a correlated sequence, from the means of its consecutive parts.

    The first tenth is left out: it starts from an empty system. Valid when a part is much longer than the correlation.
    """
    kept = values[values.size // 10 :]
    if kept.size < batches:
        raise ValueError(f"{values.size} values are too few for {batches} batches")
    means = np.array([part.mean() for part in np.array_split(kept, batches)])
    return float(means.mean()), t_975(batches - 1) * float(means.std(ddof=1)) / sqrt(batches)


def mean_in_system(arrival_s: Array, finished_s: Array) -> float:
    """Time average of the number of calls between arrival and end, from the first arrival to the last end."""
    times = np.concatenate([arrival_s, finished_s])
    order = np.argsort(times, kind="stable")
    count = np.cumsum(np.concatenate([np.ones(arrival_s.size), -np.ones(finished_s.size)])[order])
    gaps = np.diff(times[order])
    return float((count[:-1] * gaps).sum() / gaps.sum())

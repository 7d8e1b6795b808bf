"""What a pool will be asked for: busy slot-seconds per window of the near future, by where they come from.

The model is the infinite-server one: every call is counted as if it started when it is released, so that a window's
mean over its width is the offered concurrency, and its spread is what chance does to it.
Jennings, Mandelbaum, Massey and Whitt (1996), Server staffing to meet time-varying demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS, QuantileGrid

Array = NDArray[np.float64]
TERMS = ("backlog", "in_service", "downstream", "arrivals")
NORMAL = np.array([NormalDist().inv_cdf(level) for level in LEVELS])


@dataclass(frozen=True)
class PoolDemand:
    """edges_s : (J + 1,) window edges from now, increasing from 0
    mean, variance : term -> (J,) slot-seconds and their square, independent between terms
    """

    edges_s: Array
    mean: Mapping[str, Array]
    variance: Mapping[str, Array]

    @cached_property
    def total(self) -> Array:
        """(J,) expected slot-seconds per window."""
        return np.asarray(sum(self.mean.values(), np.zeros(self.edges_s.size - 1)))

    @cached_property
    def spread(self) -> Array:
        """(J,) variance of the slot-seconds per window."""
        return np.asarray(sum(self.variance.values(), np.zeros(self.edges_s.size - 1)))

    @cached_property
    def widths_s(self) -> Array:
        return np.diff(self.edges_s)

    def grid(self) -> QuantileGrid:
        """(J, K) busy slots on average over each window."""
        return grid_of_moments(self.total / self.widths_s, self.spread / self.widths_s**2)

    def at(self, level: float) -> Array:
        """(J,) one quantile of the busy slots of each window."""
        return quantile_of_moments(self.total / self.widths_s, self.spread / self.widths_s**2, level)

    def work(self, until_s: float) -> tuple[float, float]:
        """Mean and variance of the slot-seconds until then; the windows' deviations are added, the safe side."""
        share = np.clip((until_s - self.edges_s[:-1]) / self.widths_s, 0.0, 1.0)
        return float(self.total @ share), float((np.sqrt(self.spread) @ share) ** 2)

    def window_at(self, time_s: float) -> int:
        """The first window that begins at this time or later; the last one when all begin before."""
        return min(int(np.searchsorted(self.edges_s[:-1], time_s - 1e-9)), self.edges_s.size - 2)


def quantile_of_moments(mean: Array, variance: Array, level: float) -> Array:
    """Quantile of the lognormal with these moments, (...); 0 where the mean is 0.

    Sums of lengths are close to lognormal: Fenton (1960), The sum of log-normal probability distributions.
    """
    sigma = _sigma(mean, variance)
    return np.asarray(mean * np.exp(NormalDist().inv_cdf(level) * sigma - sigma**2 / 2))


def grid_of_moments(mean: Array, variance: Array) -> QuantileGrid:
    """The same at every level, (..., K)."""
    return QuantileGrid(LEVELS, spread_out(mean, variance, NORMAL))


def spread_out(mean: Array, variance: Array, normal: Array) -> Array:
    """The same at the levels that these quantiles (K,) of the standard normal belong to, (..., K)."""
    sigma = _sigma(mean, variance)[..., None]
    return np.asarray(np.asarray(mean)[..., None] * np.exp(normal * sigma - sigma**2 / 2))


def _sigma(mean: Array, variance: Array) -> Array:
    mean = np.asarray(mean, dtype=np.float64)
    ratio = np.divide(variance, mean**2, out=np.zeros_like(mean), where=mean > 1e-12)
    return np.sqrt(np.log1p(np.maximum(ratio, 0.0)))


def demand_of_counts(
    edges_s: Array, waiting: float, running: float, service_s: float, rate_per_s: float, rate_variance: float
) -> PoolDemand:
    """Demand when nothing but counts is known: exponential service of mean `service_s`, Poisson arrivals, no workflows.

    rate_variance : of the estimate of the arrival rate
    """
    s = max(service_s, 1e-9)
    left = np.exp(-edges_s / s)
    one = s * (left[:-1] - left[1:])  # expected busy seconds of one call in each window
    widths = np.diff(edges_s)
    fresh = s * (widths - one)  # of calls that arrive at rate 1
    square = np.minimum(one * widths, 2 * s * one)
    mean = {"backlog": waiting * one, "in_service": running * one, "arrivals": rate_per_s * fresh}
    variance = {
        "backlog": waiting * np.maximum(square - one**2, 0.0),
        "in_service": running * np.maximum(square - one**2, 0.0),
        "arrivals": rate_per_s * fresh * np.minimum(widths, 2 * s) + rate_variance * fresh**2,
    }
    return PoolDemand(edges_s, mean, variance)

"""Soft boosts by distribution instead of prediction: everybody ages alike, calls of short kinds start ahead."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log, log1p

import numpy as np
from numpy.typing import NDArray

from swarmx.ordering.contract import Asked
from swarmx.quantiles import LEVELS, mass

MEMORY = 500  # calls over which the mean service time is taken
FIRST, GROWTH = 20, 1.25  # gamma is set after so many calls, and again each time their count has grown by that


@dataclass
class GammaBoost:
    """First come first served, with a head start: key = arrival - boost, in seconds.

    boost = log(M / (M - 1)) / gamma, M = E[exp(gamma S)] over the length distribution that the call is known by; for a
    known length that is log(1 / (1 - exp(-gamma S))) / gamma, large for short calls and nothing for long ones. As no
    waiting time changes a boost, a call is overtaken by later ones only within the difference of two boosts.

    decay : gamma times the mean service time; for exponential lengths it is one minus the load for which the
        order has the lightest tail
    Yu and Scully (2024), Strongly Tail-Optimal Scheduling in the Light-Tailed M/G/1, and its form for calls known by
    distribution alone; as used without any prediction by arXiv 2606.18431, whose preemption is not part of this.
    """

    decay: float = 0.2

    def __post_init__(self) -> None:
        if not self.decay > 0:
            raise ValueError(f"decay must be positive, got {self.decay}")
        self._mean_s = self._gamma = 0.0
        self._seen = 0
        self._next = FIRST

    def arrived(self, asked: Asked) -> None:
        """Follow the mean service time. Gamma moves rarely, so that calls that are alike keep their order."""
        self._seen += 1
        self._mean_s += (asked.work_s - self._mean_s) / min(self._seen, MEMORY)
        if self._seen >= self._next and self._mean_s > 0:
            self._gamma = self.decay / self._mean_s
            self._next = max(self._seen + 1, int(min(self._seen * GROWTH, self._seen + MEMORY)))

    def key(self, asked: Asked) -> float:
        if self._gamma <= 0:
            return asked.call.arrival_s
        seconds = asked.lengths.grid * asked.token_s + asked.call.prompt_tokens * asked.prefill_s
        return asked.call.arrival_s - boost_s(seconds, self._gamma)


def boost_s(seconds: NDArray[np.float64], gamma: float) -> float:
    """Head start of a call whose service time has these quantiles, (K,) on `LEVELS`; finite for every grid."""
    exponents = gamma * np.maximum(seconds, 1e-9)
    top = float(exponents.max())
    if top < 1.0:  # M - 1 directly, which is small
        return -log_ratio(float(mass(LEVELS) @ np.expm1(exponents))) / gamma
    log_m = top + log(float(mass(LEVELS) @ np.exp(exponents - top)))
    return -log1p(-exp(-log_m)) / gamma if log_m > 1e-12 else -log(expm1(1e-12)) / gamma


def log_ratio(excess: float) -> float:
    """log((M - 1) / M) for M = 1 + excess."""
    return log(excess) - log1p(excess)

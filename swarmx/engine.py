"""How fast a replica works, learned from what is observed of it.

Service model of a continuous-batching engine: with n sequences running and kv tokens of cache in use, each running
sequence takes

    tau(n, kv) = (a + b * n + c * kv) / v     seconds per output token,
    p / v                                     seconds per uncached prompt token, during which decoding stalls.

A server that runs one call at a time is the case n = 1. The constants a, b, c, p are shared by all replicas of a device
kind; v is one number per replica, near 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ENOUGH_SAMPLES = 100  # a kind with fewer uses the pool's constants


@dataclass(frozen=True, slots=True)
class EngineConstants:
    """a, b (s per token and sequence), c (s per token and KV token), p (s per prompt token)."""

    a: float
    b: float = 0.0
    c: float = 0.0
    p: float = 0.0

    def tau(self, n: float | Array, kv: float | Array) -> float | Array:
        """Seconds per output token of each running sequence."""
        return self.a + self.b * n + self.c * kv

    def as_tuple(self) -> tuple[float, float, float, float]:
        return self.a, self.b, self.c, self.p


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one call's life on a replica, between two observations of it.

    seconds, tokens : its length and the output tokens in it
    batch, kv : time averages of running sequences and KV tokens over it
    prefilled : uncached prompt tokens that the replica prefilled in it, this call's own included
    """

    seconds: float
    tokens: float
    batch: float
    kv: float
    prefilled: float


@dataclass
class LeastSquares:
    """Running non-negative least squares of seconds on (tokens, tokens * batch, tokens * kv, prefilled).

    Rows are weighted by 1 / seconds, so that the relative error counts, and forget with `half_life` rows. A small ridge
    on b and c makes a the one that explains a batch that never varied.
    """

    half_life: float = 2000.0
    gram: Array = field(default_factory=lambda: np.zeros((4, 4)))
    moment: Array = field(default_factory=lambda: np.zeros(4))
    count: int = 0

    def add(self, segment: Segment, speed: float) -> None:
        if segment.seconds <= 0 or (segment.tokens <= 0 and segment.prefilled <= 0):
            return
        t, x = segment.seconds, segment.tokens
        row = np.array([x, x * segment.batch, x * segment.kv, segment.prefilled]) / (t * speed)
        keep = 0.5 ** (1 / self.half_life)
        self.gram = self.gram * keep + np.outer(row, row)
        self.moment = self.moment * keep + row
        self.count += 1

    def solve(self) -> EngineConstants | None:
        """Best non-negative constants, or None when nothing identifies them."""
        scale = np.sqrt(np.diag(self.gram))
        if scale[0] == 0:
            return None
        scale = np.where(scale == 0, 1.0, scale)
        gram = self.gram / np.outer(scale, scale) + np.diag([0.0, 1e-3, 1e-3, 1e-4])
        moment = self.moment / scale
        best, least = None, np.inf
        for size in range(1, 5):
            for chosen in combinations(range(4), size):
                index = np.ix_(chosen, chosen)
                try:
                    part = np.linalg.solve(gram[index], moment[list(chosen)])
                except np.linalg.LinAlgError:
                    continue
                if np.any(part < 0):
                    continue
                loss = part @ gram[index] @ part - 2 * part @ moment[list(chosen)]
                if loss < least - 1e-12:
                    theta = np.zeros(4)
                    theta[list(chosen)] = part
                    best, least = theta, loss
        if best is None or best[0] + best[1] <= 0:
            return None
        a, b, c, p = best / scale
        return EngineConstants(float(a), float(b), float(c), float(p))


@dataclass
class SpeedEstimate:
    """log v of one replica: a mean of log(expected / observed seconds) that forgets.

    Weights are in calls' worth of tokens. An observation has lost half its weight after `memory` calls' worth of
    work, so a hidden slowdown shows within a few calls; the prior v = 1 counts as `prior` calls.
    """

    memory: float = 8.0
    prior: float = 0.25
    weighted: float = 0.0
    weight: float = 0.0

    def add(self, log_ratio: float, weight: float) -> None:
        keep = 0.5 ** (weight / self.memory)
        self.weighted = self.weighted * keep + log_ratio * weight
        self.weight = self.weight * keep + weight

    @property
    def speed(self) -> float:
        return math.exp(self.weighted / (self.weight + self.prior))


class OnlineFit:
    """Learns constants per device kind and a speed per replica from segments; pure, deterministic, O(1) per segment.

    v is relative to the constants, which move slowly (half their memory is 2,000 segments), while v moves within a few
    calls: a lasting change of a whole kind shows in v first and ends up in the constants.

    known : constants per device kind that are given (from a profile or a log); they are not refitted
    """

    def __init__(self, known: dict[str, EngineConstants] | None = None, refit_every: int = 25) -> None:
        self.known = dict(known or {})
        self.refit_every = refit_every
        self._kinds: dict[str, LeastSquares] = {}
        self._pool = LeastSquares()
        self._speeds: dict[str, SpeedEstimate] = {}
        self._kind_of: dict[str, str] = {}
        self._constants: dict[str, EngineConstants] = dict(self.known)
        self._pool_constants: EngineConstants | None = None
        self._mean_tokens = 0.0
        self.refits = 0  # how often any constants changed

    def place(self, replica: str, kind: str) -> None:
        """Announce a replica and its device kind."""
        self._kind_of[replica] = kind
        self._speeds.setdefault(replica, SpeedEstimate())

    def forget(self, replica: str) -> None:
        self._kind_of.pop(replica, None)
        self._speeds.pop(replica, None)

    def observe(self, replica: str, segment: Segment) -> None:
        """Learn from a stretch of a call; one without time or without work says nothing and is ignored."""
        kind = self._kind_of.get(replica)
        if kind is None or segment.seconds <= 0 or segment.tokens + segment.prefilled <= 0:
            return
        if kind not in self.known:
            fit = self._kinds.setdefault(kind, LeastSquares())
            fit.add(segment, self.speed(replica) if kind in self._constants else 1.0)
            self._pool.add(segment, 1.0)
            if fit.count % self.refit_every == 0:
                self._refit(kind, fit)
        constants, _ = self.constants_of(kind)
        if segment.tokens > 0:
            self._mean_tokens += (segment.tokens - self._mean_tokens) / min(self._pool.count + 1, 200)
            if constants is not None:
                expected = segment.tokens * constants.tau(segment.batch, segment.kv) + constants.p * segment.prefilled
                ratio = min(max(float(expected) / segment.seconds, 1e-3), 1e3)
                self._speeds[replica].add(math.log(ratio), segment.tokens / max(self._mean_tokens, 1e-9))

    def _refit(self, kind: str, fit: LeastSquares) -> None:
        if fit.count >= ENOUGH_SAMPLES:
            solved = fit.solve()
            if solved is not None:
                if kind not in self._constants:  # speeds so far were relative to the pool's constants
                    for replica in (r for r, k in self._kind_of.items() if k == kind):
                        self._speeds[replica] = SpeedEstimate()
                self._constants[kind] = solved
        if self._pool.count >= ENOUGH_SAMPLES:
            self._pool_constants = self._pool.solve() or self._pool_constants
        self.refits += 1

    def constants_of(self, kind: str) -> tuple[EngineConstants | None, bool]:
        """(constants, whether they are the kind's own): the pool's where the kind has too few samples, else None."""
        own = self._constants.get(kind)
        return (self._pool_constants, False) if own is None else (own, True)

    def speed(self, replica: str) -> float:
        """v of a replica relative to its kind's constants; 1 until something is known."""
        estimate = self._speeds.get(replica)
        return 1.0 if estimate is None else estimate.speed


def fit_segments(segments: Sequence[Segment]) -> EngineConstants:
    """Constants that explain a batch of segments at speed 1. Raises ValueError when they identify nothing."""
    fit = LeastSquares(half_life=1e12)
    for segment in segments:
        fit.add(segment, 1.0)
    solved = fit.solve()
    if solved is None:
        raise ValueError(f"{len(segments)} segments do not identify an engine: no tokens or no time passed")
    return solved

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
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ENOUGH_SAMPLES = 100  # a kind with fewer uses the pool's constants
REFIT_EVERY = 25  # segments between two refits at first; an eighth of what has been seen later on


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


class LeastSquares:
    """Running non-negative least squares of seconds on (tokens, tokens * batch, tokens * kv, prefilled).

    Rows are weighted by 1 / seconds, so that the relative error counts, and lose half their weight after `half_life`
    further rows. A small ridge on b and c makes a the one that explains a batch that never varied.
    """

    def __init__(self, half_life: float = 2000.0) -> None:
        self.half_life = half_life
        self.count = 0
        self._rows: list[tuple[float, float, float, float]] = []
        self._gram: Array = np.zeros((4, 4))
        self._moment: Array = np.zeros(4)

    def add(self, segment: Segment, speed: float) -> None:
        """Take in a segment of a replica that runs at `speed` times the constants."""
        x, scale = segment.tokens, 1 / (segment.seconds * speed)
        self._rows.append((x * scale, x * segment.batch * scale, x * segment.kv * scale, segment.prefilled * scale))
        self.count += 1

    def _absorb(self) -> None:
        if not self._rows:
            return
        rows = np.array(self._rows)
        weight = 0.5 ** (np.arange(len(rows) - 1, -1, -1) / self.half_life)
        keep = 0.5 ** (len(rows) / self.half_life)
        self._gram = self._gram * keep + (rows * weight[:, None]).T @ rows
        self._moment = self._moment * keep + weight @ rows
        self._rows.clear()

    def solve(self) -> EngineConstants | None:
        """Best non-negative constants, or None when nothing identifies them."""
        self._absorb()
        scale = np.sqrt(np.diag(self._gram))
        if scale[0] == 0:
            return None
        scale = np.where(scale == 0, 1.0, scale)
        gram = self._gram / np.outer(scale, scale) + np.diag([0.0, 1e-3, 1e-3, 1e-4])
        theta = _non_negative(gram, self._moment / scale)
        if theta is None or theta[0] + theta[1] <= 0:
            return None
        a, b, c, p = (theta / scale).tolist()
        return EngineConstants(a, b, c, p)


def _non_negative(gram: Array, moment: Array) -> Array | None:
    """argmin of t' gram t - 2 moment' t over t >= 0, by looking at every set of active coordinates."""
    best, least = None, np.inf
    for size in range(1, len(moment) + 1):
        for chosen in combinations(range(len(moment)), size):
            index = list(chosen)
            try:
                part = np.linalg.solve(gram[np.ix_(index, index)], moment[index])
            except np.linalg.LinAlgError:
                continue
            loss = -float(part @ moment[index])
            if np.all(part >= 0) and loss < least - 1e-12:
                best, least = np.zeros(len(moment)), loss
                best[index] = part
    return best


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

    def __init__(self, known: dict[str, EngineConstants] | None = None) -> None:
        self.known = dict(known or {})
        self._next_refit: dict[str, int] = {}
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
            if fit.count >= self._next_refit.get(kind, REFIT_EVERY):
                self._next_refit[kind] = fit.count + max(REFIT_EVERY, min(fit.count, 2000) // 8)
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

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swarmx import nonnegative

Array = NDArray[np.float64]

ENOUGH_SEGMENTS = 100  # of the whole pool, before anything is said about seconds
PRIOR_SEGMENTS = 20.0  # what the pool's constants weigh when a kind's own are fitted
KNOWN_SEGMENTS = 100.0  # what constants weigh that were given
CONTRADICTED = 1.5  # nothing, once they are off by this factor
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

    def at_speed(self, speed: float) -> EngineConstants:
        """The constants of a device that is `speed` times as fast."""
        return EngineConstants(self.a / speed, self.b / speed, self.c / speed, self.p / speed)

    def as_tuple(self) -> tuple[float, float, float, float]:
        return self.a, self.b, self.c, self.p


NOTHING = np.zeros(4)
RIDGE = np.array([0.0, 1e-3, 1e-3, 1e-4])


class Segment(NamedTuple):
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
        self._keep = 0.5 ** (1 / half_life)
        self._gram: Array = np.zeros((4, 4))
        self._moment: Array = np.zeros(4)
        self._solution: Array = np.zeros(4)

    def add(self, segment: Segment, speed: float) -> None:
        """Take in a segment of a replica that runs at `speed` times the constants."""
        seconds, x, batch, kv, prefilled = segment
        scale = 1 / (seconds * speed)
        row = (x * scale, x * batch * scale, x * kv * scale, prefilled * scale)
        nonnegative.accumulate(self._gram, self._moment, row, self._keep)
        self.count += 1

    def information(self) -> Array:
        """(4,) mean squared regressors of a row: how much a row tells about each constant."""
        return np.asarray(np.diag(self._gram) / max(self._total(), 1.0))

    def contradicts(self, constants: EngineConstants) -> bool:
        """Whether segments took `CONTRADICTED` times longer or shorter, on average, than the constants say."""
        if self.count < REFIT_EVERY:
            return False
        ratio = float(self._moment @ np.array(constants.as_tuple())) / self._total()  # expected over observed seconds
        return not 1 / CONTRADICTED < ratio < CONTRADICTED

    def _total(self) -> float:
        """Weight of what was added, in latest rows."""
        return float((1 - 0.5 ** (self.count / self.half_life)) / (1 - self._keep))

    def solve(self, prior: EngineConstants | None = None, weight: Array | None = None) -> EngineConstants | None:
        """Best non-negative constants, or None when nothing identifies them.

        prior, weight : constants to start from, and what they weigh, (4,) squared regressors
        """
        if prior is None or weight is None:
            start = weight = NOTHING
        else:
            start = np.array(prior.as_tuple())
        nonnegative.fit(self._gram, self._moment, start, weight, RIDGE, self._solution)
        a, b, c, p = self._solution.tolist()
        return EngineConstants(a, b, c, p) if a + b > 0 else None


@dataclass(slots=True)
class SpeedEstimate:
    """log v of one replica: a mean of log(expected / observed seconds) that forgets.

    Weights are in calls' worth of tokens. An observation has lost half its weight after `memory` calls' worth of
    work, so a hidden slowdown shows within a few calls; the prior v = 1 counts as `prior` calls.
    """

    memory: float = 8.0
    prior: float = 0.25
    weighted: float = 0.0
    weight: float = 0.0
    log_speed: float = 0.0

    def add(self, log_ratio: float, weight: float) -> None:
        keep = 0.5 ** (weight / self.memory)
        self.weighted = self.weighted * keep + log_ratio * weight
        self.weight = self.weight * keep + weight
        self.log_speed = self.weighted / (self.weight + self.prior)


class OnlineFit:
    """Learns constants per device kind and a speed per replica from segments; pure, deterministic, O(1) per segment.

    First the constants of the pool are fitted, each replica's time taken at its configured relative speed. A kind's own
    constants start from these, which weigh as much as `PRIOR_SEGMENTS` segments, so a kind that is used little is
    neither compared in another unit nor trusted blindly. Inside a kind the speeds v have geometric mean 1: a lasting
    change of the whole kind ends up in its constants, whose memory is 2,000 segments, and shows in v meanwhile.

    known : constants per device kind that are given (from a profile or a log); they count at once, weigh as much as
        `KNOWN_SEGMENTS` segments, and are left aside while what is seen contradicts them
    """

    def __init__(self, known: dict[str, EngineConstants] | None = None) -> None:
        self.known = dict(known or {})
        self.refits = 0  # how often any constants changed
        self._next_refit = ENOUGH_SEGMENTS
        self._pool = LeastSquares()
        self._pool_constants: EngineConstants | None = None
        self._kinds: dict[str, LeastSquares] = {}
        self._constants: dict[str, EngineConstants] = dict(self.known)
        self._replicas: dict[str, tuple[str, float]] = {}  # kind and configured relative speed
        self._speeds: dict[str, SpeedEstimate] = {}
        self._log_speeds: dict[str, float] = {}  # kind -> sum of log v over its replicas
        self._relative: dict[str, float] = {}  # kind -> sum of their configured speeds
        self._counts: dict[str, int] = {}  # kind -> its replicas
        self._mean_tokens = 0.0
        self._segments = 0

    def place(self, replica: str, kind: str, relative_speed: float) -> None:
        """Announce a replica, its device kind, and its configured speed relative to the pool's mean."""
        self._count_out(replica)
        self._replicas[replica] = (kind, relative_speed)
        estimate = self._speeds.setdefault(replica, SpeedEstimate())
        self._log_speeds[kind] = self._log_speeds.get(kind, 0.0) + estimate.log_speed
        self._relative[kind] = self._relative.get(kind, 0.0) + relative_speed
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def forget(self, replica: str) -> None:
        self._count_out(replica)
        self._replicas.pop(replica, None)
        self._speeds.pop(replica, None)

    def observe(self, replica: str, segment: Segment) -> None:
        """Learn from a stretch of a call; one without time or without work says nothing and is ignored."""
        placed = self._replicas.get(replica)
        if placed is None or segment.seconds <= 0 or segment.tokens + segment.prefilled <= 0:
            return
        (kind, relative_speed), estimate = placed, self._speeds[replica]
        self._segments += 1
        self._pool.add(segment, relative_speed)
        seen = self._kinds.get(kind)
        if seen is None:
            seen = self._kinds[kind] = LeastSquares()
        seen.add(segment, math.exp(estimate.log_speed - self.mean_log_speed(kind)))
        if self._pool.count >= self._next_refit:
            self._next_refit = self._pool.count + max(REFIT_EVERY, min(self._pool.count, 2000) // 8)
            self._refit()
        if segment.tokens > 0:
            self._mean_tokens += (segment.tokens - self._mean_tokens) / min(self._segments, 200)
            self._update_speed(estimate, kind, segment)

    def _update_speed(self, estimate: SpeedEstimate, kind: str, segment: Segment) -> None:
        constants = self.constants_of(kind)
        if constants is None:
            return
        expected = segment.tokens * float(constants.tau(segment.batch, segment.kv)) + constants.p * segment.prefilled
        ratio = min(max(expected / segment.seconds, 1e-3), 1e3)
        before = estimate.log_speed
        estimate.add(math.log(ratio), segment.tokens / max(self._mean_tokens, 1e-9))
        self._log_speeds[kind] += estimate.log_speed - before

    def _refit(self) -> None:
        self._pool_constants = self._pool.solve() or self._pool_constants
        if self._pool_constants is None:
            return
        information = self._pool.information()
        for kind, count in self._counts.items():
            seen = self._kinds.setdefault(kind, LeastSquares())
            prior, segments = self.known.get(kind), KNOWN_SEGMENTS
            if prior is None or seen.contradicts(prior):
                prior, segments = self._pool_constants.at_speed(self._relative[kind] / count), PRIOR_SEGMENTS
            solved = seen.solve(prior, segments * information)
            self._constants[kind] = solved or prior
        self.refits += 1

    def _count_out(self, replica: str) -> None:
        """Take a replica off the sums of its kind."""
        placed = self._replicas.get(replica)
        if placed is None:
            return
        kind, relative_speed = placed
        self._log_speeds[kind] -= self._speeds[replica].log_speed
        self._relative[kind] -= relative_speed
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._log_speeds[kind], self._relative[kind], self._counts[kind]

    def constants_of(self, kind: str) -> EngineConstants | None:
        """Constants of a kind; None while nobody in the pool has enough segments."""
        return self._constants.get(kind)

    def constants_at(self, replica: str) -> EngineConstants | None:
        """Constants of one replica, at its speed; None while nothing is known."""
        placed = self._replicas.get(replica)
        constants = None if placed is None else self.constants_of(placed[0])
        return None if constants is None else constants.at_speed(self.speed(replica))

    def speed(self, replica: str) -> float:
        """v of a replica: relative to its kind, geometric mean 1 over the kind; alone in its kind, v itself."""
        placed = self._replicas.get(replica)
        return 1.0 if placed is None else math.exp(self.log_speed(replica) - self.mean_log_speed(placed[0]))

    def log_speed(self, replica: str) -> float:
        """log v of a replica before the mean of its kind is taken off; 0 for one that is not here."""
        estimate = self._speeds.get(replica)
        return 0.0 if estimate is None else estimate.log_speed

    def mean_log_speed(self, kind: str) -> float:
        """Mean of log v over a kind; 0 where it has one replica."""
        count = self._counts.get(kind, 0)
        return self._log_speeds[kind] / count if count > 1 else 0.0


def fit_segments(segments: Sequence[Segment]) -> EngineConstants:
    """Constants that explain a batch of segments at speed 1. Raises ValueError when they identify nothing."""
    fit = LeastSquares(half_life=1e12)
    for segment in segments:
        fit.add(segment, 1.0)
    solved = fit.solve()
    if solved is None:
        raise ValueError(f"{len(segments)} segments do not identify an engine: no tokens or no time passed")
    return solved

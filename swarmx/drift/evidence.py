"""Evidence that a stream of p-values is no longer uniform, with a promised rate of false alarms.

While nothing has changed, a record's rank among its group's reference and the records before it is uniform and
independent of the ranks before (the conformal p-value, ties broken at random), whatever the losses' distribution,
however heavy its tail, however few rows the reference holds. A bet f >= 0 with mean 1 under the uniform law, here
eps * p^(eps - 1) or exp(t z - t^2 / 2) with z = Phi^-1(1 - p), multiplies wealth by f(p) per record; wealth that grows
tells that p is too often small. The former grows fastest when few records are very far out, the latter when all have
moved by t standard deviations, which is what a factor does to lengths that spread widely.

One unit is put on a change beginning at each record. Of the sum R that these bets are worth (Shiryaev-Roberts) after n
records, R - n is a martingale. An alarm is raised when R >= A, and the sum then starts from nothing; since each alarm
takes at least A away, the expected number of alarms in n records is at most n / A, for every n. So A is the wanted
number of records per false alarm; nothing else is set by hand. Bets are mixed over three directions (losses larger;
observations in a higher, in a lower part of their grid) and three shapes; a mean of bets is a bet. Whoever watches
several streams at once shares the rate among them.

For the bets on one score this is exact. Losses and places are two scores of the same records: how the ranks of the two
have been paired so far tells a little about the next ones, in the order of one over the rows ranked, so that the bound
on their mean is exact in the limit only. Alarms counted with thin references have not shown it (docs/adaptation.md).

The window follows: a change that has not been told within the time that the weakest bet needs against the very change
it is made for, log(A J) / min(log eps + 1 / eps - 1, t^2 / 2) records, will not be told later, and older evidence is
dropped. (Dropping starts only lowers R.)

Vovk, Nouretdinov and Gammerman (2003), Testing Exchangeability On-Line; Vovk et al. (2021), Retrain or Not Retrain:
Conformal Test Martingales for Change-Point Detection; Shin, Ramdas and Rinaldo (2024), E-detectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
POWERS = (0.5,)  # eps; the best one against a change has 1 / eps = mean of -log p after it
TILTS = (0.25, 0.6)  # t
DIRECTIONS = ("larger tail losses", "longer than predicted", "shorter than predicted")
BLOCK = 8  # records whose evidence is kept as one sum, and between looks
SUMS = 8  # kept of a block that fills
BETS = np.array(
    [(math.log(eps), eps - 1, 0.0) for eps in POWERS] + [(-(tilt**2) / 2, 0.0, tilt) for tilt in TILTS]
)  # (J, 3) the log of a bet is BETS @ (1, log p, z)
GROWTH = [math.log(eps) + 1 / eps - 1 for eps in POWERS] + [tilt**2 / 2 for tilt in TILTS]
_NORMAL = NormalDist()


def window_of(threshold: float) -> int:
    """Records over which evidence is kept at that threshold A."""
    return math.ceil(math.log(threshold * len(BETS) * len(DIRECTIONS)) / min(GROWTH) / BLOCK) * BLOCK


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Some consecutive records. logs : sum of log p per direction; scores : sum of z, of the loss and of the place;
    loss : sum of their losses over the reference's; log_ratio : sum of log (observed / predicted median) less the
    reference's bias"""

    at: float
    records: int
    logs: tuple[float, float, float]
    scores: tuple[float, float]
    loss: float
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Finding:
    """statistic : log R; direction : index into `DIRECTIONS` of the bet worth most; records, loss, log_ratio : since
    the start of the change as that bet sees it, the latter two as means"""

    statistic: float
    direction: int
    records: int
    loss: float
    log_ratio: float


@dataclass
class Evidence:
    """One stream's blocks, oldest first, over at most `window` records.

    quiet : records still to come before it is listened to again after an alarm; heard : all records; alarmed_s : time
    of the last alarm, and nothing older counts
    """

    window: int
    quiet: int = 0
    heard: int = 0
    alarmed_s: float = -math.inf
    blocks: list[Block] = field(default_factory=list)
    _at: float = -math.inf
    _open: list[float] = field(default_factory=lambda: [0.0] * SUMS)
    _bound: Array | None = field(default=None, repr=False, compare=False)  # (3, J) logs, see `at_most`

    def add(self, now: float, p_loss: float, p_place: float, loss: float, log_ratio: float) -> bool:
        """One record; p_place : of its place in its grid, small when high. True when a block has become full."""
        self.heard += 1
        if self.quiet > 0:
            self.quiet -= 1
            return False
        self._at = max(self._at, now)
        z_loss, z_place = -_NORMAL.inv_cdf(p_loss), -_NORMAL.inv_cdf(p_place)
        gained = (1.0, math.log(p_loss), math.log(p_place), math.log1p(-p_place), z_loss, z_place, loss, log_ratio)
        self._open = [old + new for old, new in zip(self._open, gained, strict=True)]
        if self._open[0] < BLOCK:
            return False
        records, by_loss, high, low, z_loss, z_place, loss, log_ratio = self._open
        self._open = [0.0] * SUMS
        block = Block(self._at, int(records), (by_loss, high, low), (z_loss, z_place), loss, log_ratio)
        if self._bound is not None:
            self._bound = _with(block, self._bound)
        self._keep([*self.blocks, block])
        return True

    def at_most(self) -> float:
        """A number that log R does not exceed: as if nothing had been dropped, by the recursion R' = (R + n) f, and of
        the largest of the bets. Most looks end here.
        """
        if self._bound is None:
            self._bound = np.full((len(DIRECTIONS), len(BETS)), -math.inf)
            for block in self.blocks:
                self._bound = _with(block, self._bound)
        return float(self._bound.max())

    def look(self) -> Finding | None:
        """What the blocks say so far; None when there are none."""
        if not self.blocks:
            return None
        records = np.array([block.records for block in self.blocks], dtype=np.float64)  # (B,)
        logs = np.array([block.logs for block in self.blocks])  # (B, 3)
        scores = np.array([block.scores for block in self.blocks])[:, [0, 1, 1]] * (1.0, 1.0, -1.0)  # (B, 3)
        sums = np.stack((np.broadcast_to(records[:, None], logs.shape), logs, scores), axis=-1)  # (B, 3, 3)
        worth = sums @ BETS.T  # (B, 3, J)
        since = np.cumsum(worth[::-1], axis=0)[::-1] + np.log(records)[:, None, None]
        top = float(since.max())
        start, direction, _ = np.unravel_index(int(since.argmax()), since.shape)
        changed = self.blocks[int(start) :]
        count = sum(block.records for block in changed)
        return Finding(
            top + math.log(float(np.exp(since - top).mean(axis=(1, 2)).sum())),
            int(direction),
            count,
            sum(block.loss for block in changed) / count,
            sum(block.log_ratio for block in changed) / count,
        )

    def alarm(self, now: float) -> None:
        """An alarm was raised: begin anew, and be quiet for one window."""
        self.blocks, self._open, self._bound = [], [0.0] * SUMS, None
        self.quiet, self.alarmed_s = self.window, now

    def merged(self, other: Evidence) -> Evidence:
        """Both streams' full blocks in order of time, the latest window of them; for independent records."""
        alarmed_s = max(self.alarmed_s, other.alarmed_s)
        out = Evidence(
            self.window, max(self.quiet, other.quiet), self.heard + other.heard, alarmed_s, [], max(self._at, other._at)
        )
        out._keep(sorted(b for b in (*self.blocks, *other.blocks) if b.at > alarmed_s))
        return out

    def _keep(self, blocks: Iterable[Block]) -> None:
        kept = list(blocks)
        total = sum(block.records for block in kept)
        while total > self.window:
            total -= kept.pop(0).records
        self.blocks = kept


def _with(block: Block, before: Array) -> Array:
    """Logs of (R + n) f per direction and bet (3, J), for the n records of a block and what the bets make of them."""
    (by_loss, high, low), (z_loss, z_place), n = block.logs, block.scores, block.records
    sums = np.array(((n, by_loss, z_loss), (n, high, z_place), (n, low, -z_place)))
    after: Array = np.logaddexp(before, math.log(n)) + sums @ BETS.T
    return after

"""Champion against challenger on records that neither was trained on, with a bound on the error whenever one looks.

A bettor gains when a difference of losses is positive. While the differences have mean 0 or less its wealth exceeds
1 / alpha at any time with probability alpha at most (Ville), so one may look after every record and stop when it does.
Several stakes are played side by side and their wealths averaged, which keeps the promise and adapts to the size of
the difference.

Losses are pinball losses over all levels, divided by what both models expected of the call, so that every record is
bounded by what was known before; a difference of more than `CLIP` times that counts as `CLIP` times that.

Waudby-Smith and Ramdas (2024), Estimating Means of Bounded Random Variables by Betting; Shafer (2021), Testing by
Betting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swarmx.drift.scores import MEAN
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
Verdict = Literal["promote", "reject", "undecided"]
CLIP = 0.25
STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
COVERED = [int(np.flatnonzero(np.isclose(LEVELS, level))[0]) for level in (0.5, 0.9, 0.95, 0.99)]
LEAST = 30  # records before coverage says anything


def pinball(grid: Array, observed: float) -> float:
    """Mean pinball loss over all levels of one grid (K,)."""
    gap = observed - grid
    return float(np.maximum(LEVELS * gap, (LEVELS - 1) * gap).mean())


@dataclass
class Wealth:
    """Of a bettor that gains when a number in [-1, 1] is positive, one account per stake."""

    logs: Array = field(default_factory=lambda: np.zeros(len(STAKES)))

    def bet(self, difference: float) -> None:
        self.logs = self.logs + np.log1p(STAKES * min(max(difference, -1.0), 1.0))

    @property
    def log(self) -> float:
        """Log of the mean over the accounts."""
        top = float(self.logs.max())
        return top + math.log(float(np.exp(self.logs - top).mean()))


@dataclass
class Contest:
    """Feed it each record's grids, raw and as they would be served (online calibration applied); ask for the verdict.

    alpha : probability of promoting a challenger whose raw predictions are no better, and of promoting one that would
        serve worse by more than `margin`, each over the whole contest; rejecting errs with the same probability
    margin : by so much of the champion's loss may a challenger serve worse: corrected predictions can hardly differ
    most : records after which an undecided challenger is rejected
    """

    alpha: float = 0.01
    margin: float = 0.1
    most: int = 2000
    records: int = 0
    better: Wealth = field(default_factory=Wealth)
    harmless: Wealth = field(default_factory=Wealth)
    worse: Wealth = field(default_factory=Wealth)
    inferior: Wealth = field(default_factory=Wealth)
    losses: Array = field(default_factory=lambda: np.zeros(4))  # champion, challenger raw; champion, challenger served
    covered: Array = field(default_factory=lambda: np.zeros((2, len(COVERED))))

    def add(self, champion: Array, challenger: Array, served: tuple[Array, Array], observed: float) -> None:
        """One finished call; grids (K,) of tokens. served : the champion's and the challenger's."""
        losses = np.array([pinball(grid, observed) for grid in (champion, challenger, *served)])
        scale = CLIP * max(float((champion @ MEAN + challenger @ MEAN) / 2), 1.0)
        self.better.bet((losses[0] - losses[1]) / scale)
        self.inferior.bet((losses[1] - losses[0]) / scale)
        self.harmless.bet(((1 + self.margin) * losses[2] - losses[3]) / scale)
        self.worse.bet((losses[3] - losses[2]) / scale)
        self.losses = self.losses + losses / (scale / CLIP)
        self.covered[0] += observed <= champion[COVERED]
        self.covered[1] += observed <= challenger[COVERED]
        self.records += 1

    def verdict(self) -> Verdict:
        """Promote when better and harmless are both proven and coverage is no worse; reject when the contrary is."""
        needed = -math.log(self.alpha)
        if self.better.log >= needed and self.harmless.log >= needed and self.coverage_holds():
            return "promote"
        if max(self.worse.log, self.inferior.log) >= needed or self.records >= self.most:
            return "reject"
        return "undecided"

    def coverage_holds(self) -> bool:
        """The challenger covers each level within three standard deviations, or is no further off than the champion."""
        if self.records < LEAST:
            return False
        level = LEVELS[COVERED]
        off = np.abs(self.covered / self.records - level)  # (2, levels)
        allowed = 3 * np.sqrt(level * (1 - level) / self.records) + 1 / self.records
        return bool(np.all((off[1] <= allowed) | (off[1] <= off[0])))

    def report(self) -> dict[str, Any]:
        """For history and events: mean relative losses, coverage and the evidence."""
        n = max(self.records, 1)
        names = ("champion", "challenger", "champion_served", "challenger_served")
        return {
            "records": self.records,
            "loss": {name: round(float(loss) / n, 5) for name, loss in zip(names, self.losses, strict=True)},
            "coverage": {
                who: {f"{LEVELS[k]:g}": round(float(share) / n, 4) for k, share in zip(COVERED, row, strict=True)}
                for who, row in zip(names[:2], self.covered, strict=True)
            },
            "log_evidence": {"better": round(self.better.log, 3), "harmless": round(self.harmless.log, 3)},
        }


@dataclass
class Probation:
    """The first window after a promotion: the former champion goes on in shadow and comes back if it serves better.

    window : records; alpha : as in `Contest`, of falling back early though nothing is worse
    """

    window: int = 300
    alpha: float = 0.01
    records: int = 0
    worse: Wealth = field(default_factory=Wealth)
    total: float = 0.0
    squares: float = 0.0

    def add(self, new: Array, former: Array, observed: float) -> None:
        """Served grids (K,) of both, and what was observed."""
        scale = CLIP * max(float((new @ MEAN + former @ MEAN) / 2), 1.0)
        difference = (pinball(new, observed) - pinball(former, observed)) / scale
        self.worse.bet(difference)
        clipped = min(max(difference, -1.0), 1.0)
        self.total += clipped
        self.squares += clipped**2
        self.records += 1

    def verdict(self) -> Literal["keep", "roll_back", "undecided"]:
        """At any time when harm is proven; at the window's end when the mean is worse by two standard errors."""
        if self.worse.log >= -math.log(self.alpha):
            return "roll_back"
        if self.records < self.window:
            return "undecided"
        mean = self.total / self.records
        error = math.sqrt(max(self.squares / self.records - mean**2, 0.0) / self.records)
        return "roll_back" if mean > 2 * error + 1e-12 else "keep"

    def report(self) -> dict[str, Any]:
        n = max(self.records, 1)
        return {"records": self.records, "relative_difference": round(CLIP * self.total / n, 5)}

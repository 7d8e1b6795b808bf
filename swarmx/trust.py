"""Whether a predictor is worth listening to: its losses beside those of the lengths observed per type.

Every finished call compares what was predicted of it with what the lengths observed so far would have said. A
predictor is listened to once its running loss is the smaller one, and while it stays within a limit of theirs; else
the observed lengths answer, and it goes on being compared, so it comes back by itself when it is good again. Before
that, a handful of calls go by its word on credit; so one that is wrong from the beginning decides of these alone. Bias,
order and spread all show in the loss: a biased or inverted predictor has the larger one. Where bias or order are seen
to be grossly wrong, no slack is left to it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel_trust
from swarmx.quantiles import LEVELS
from swarmx.types import Prediction

Array = NDArray[np.float64]
Reason = Literal["", "unproven", "loss", "bias", "rank"]
MEDIAN = int(np.searchsorted(LEVELS, 0.5))  # from here on over-estimates, which hold calls back, and under-estimates,
# which pile them up, both show
WORST = 20.0  # a single loss counts as at most so many times the other side's running loss
FARTHEST = math.log(1000.0)  # a single ratio of observed to predicted counts as at most this
PAIRS, EVERY = 64, 8  # calls over which the rank correlation is taken, and between two looks at it


@dataclass(frozen=True, slots=True)
class Asked:
    """What was said of a call that has not ended. credited : whether it may go by that before anything is proven"""

    said: Prediction
    plain: Prediction
    max_tokens: int | None
    call_type: str | None
    credited: bool = False


@dataclass
class Trust:
    """Compares two predictions of each finished call by pinball loss over the upper half of the levels.

    regain : the predictor is listened to once its running loss is at most so many times that of the observed lengths,
        and slack : from then on while it is at most so many times theirs
    credit : calls that go by its word before anything is concluded; first : finished calls that a conclusion takes
    enough : until so many the losses are still uncertain, and (1/n - 1/enough) times `early` is added to slack, times
        `caution` taken off regain
    bias : a median off by this factor leaves no slack and earns nothing, nor does an order of calls that is
        significantly inverted
    memory : calls over which the losses run
    stale_s : older predictors (`Prediction.age_s`) are not listened to; None: any age, the losses tell
    most : calls in flight that are remembered
    """

    slack: float = 1.05
    regain: float = 0.97
    credit: int = 10
    first: int = 10
    enough: int = 30
    early: float = 20.0
    caution: float = 3.0
    bias: float = 3.0
    memory: int = 200
    stale_s: float | None = None
    most: int = 100_000
    predictor_loss: float = 0.0
    observed_loss: float = 0.0
    log_ratio: float = 0.0  # running mean of log (observed / predicted median), and of its square
    log_square: float = 0.0
    rank_correlation: float | None = None
    compared: int = 0
    holds: bool = False  # whether the predictor's word counts
    reason: Reason = "unproven"  # why it does not
    switches: int = 0  # verdicts that were other than the one before
    version: str = ""
    _credited: int = 0
    _open: OrderedDict[str, Asked] = field(default_factory=OrderedDict)
    _pairs: Array = field(default_factory=lambda: np.zeros((2, PAIRS)))  # predicted median, observed tokens: a ring

    def asked(
        self, call_id: str, said: Prediction, plain: Prediction, max_tokens: int | None = None,
        call_type: str | None = None,
    ) -> Prediction:  # fmt: skip
        """Remember both, and return the one that counts. The truth itself (source "oracle") need not prove itself.

        A new model version is measured afresh, since what was measured of the one before says nothing of it. Until
        that has led to something it is believed as much as that one was.
        """
        if said.model_version != self.version:
            self._begin(said.model_version)
        on_credit = self.reason == "unproven" and self._credited < self.credit
        self._credited += on_credit
        self._open[call_id] = asked = Asked(said, plain, max_tokens, call_type, on_credit)
        if len(self._open) > self.most:
            self._open.popitem(last=False)
        return self._chosen(asked, plain)

    def open(self) -> dict[str, Asked]:
        """Calls that were asked about and have not ended, by id."""
        return dict(self._open)

    def current(self, call_id: str, plain: Prediction) -> Prediction | None:
        """What counts now for a call that was asked about; None for any other."""
        pair = self._open.get(call_id)
        return None if pair is None else self._chosen(pair, plain)

    def ended(self, call_id: str, output_tokens: float) -> None:
        """The call produced so many tokens. A call that was never asked about is ignored, and so is one whose
        prediction is an earlier model's."""
        pair = self._open.pop(call_id, None)
        if pair is None or pair.said.model_version != self.version:
            return
        said, plain = pair.said.tokens.values, pair.plain.tokens.values
        cut = math.inf if pair.max_tokens is None else float(pair.max_tokens)  # as the answer was
        said_loss, plain_loss, middle = kernel_trust.losses(LEVELS, said, plain, cut, MEDIAN, float(output_tokens))
        self.compared += 1
        weight = 1 / min(self.compared, self.memory)
        self.observed_loss += (plain_loss - self.observed_loss) * weight
        most = WORST * max(self.observed_loss, 1.0)
        self.predictor_loss += (min(said_loss, most) - self.predictor_loss) * weight
        ratio = math.log1p(output_tokens) - math.log1p(max(middle, 0.0))
        ratio = min(max(ratio, -FARTHEST), FARTHEST)
        self.log_ratio += (ratio - self.log_ratio) * weight
        self.log_square += (ratio**2 - self.log_square) * weight
        place = self.compared % PAIRS
        self._pairs[0, place], self._pairs[1, place] = middle, output_tokens
        if self.compared % EVERY == 0 and self.compared >= self.enough:
            begin = int(self.compared < PAIRS)  # as long as the ring is not full, its first place is empty
            self.rank_correlation = kernel_trust.rank_correlation(self._pairs, begin, min(self.compared + 1, PAIRS))
        self._judge()

    def forget(self, call_id: str) -> None:
        """The call will tell nothing: it failed or was withdrawn."""
        self._open.pop(call_id, None)

    def _chosen(self, asked: Asked, plain: Prediction) -> Prediction:
        said = asked.said
        if said.source == "oracle":
            return said
        old = self.stale_s is not None and said.age_s is not None and said.age_s > self.stale_s
        counts = self.holds or (asked.credited and self.reason == "unproven")
        return said if counts and not old else plain

    def _begin(self, version: str) -> None:
        self.version, self.compared = version, 0
        self.predictor_loss = self.observed_loss = self.log_ratio = self.log_square = 0.0
        self.rank_correlation = None

    def _judge(self) -> None:
        if self.compared < self.first:
            return
        wrong = self._wrong()
        uncertain = max(1 / self.compared - 1 / self.enough, 0.0)
        limit = 1.0 if wrong else self.slack + self.early * uncertain
        if not self.holds:
            limit = 0.0 if wrong else self.regain - self.caution * uncertain
        holds = self.predictor_loss <= limit * self.observed_loss
        self._turn(holds, "" if holds else wrong or "loss")

    def _wrong(self) -> Reason:
        """A gross fault, beyond two standard errors; few calls of small spread are taken to spread by a half."""
        most = math.log(self.bias)
        if abs(self.log_ratio) > most:
            spread = math.sqrt(max(self.log_square - self.log_ratio**2, 0.25))
            if abs(self.log_ratio) > most + 2 * spread / math.sqrt(min(self.compared, self.memory)):
                return "bias"
        correlation = self.rank_correlation
        if correlation is not None and correlation < 0:
            return "rank" if correlation < -2 / math.sqrt(min(self.compared, PAIRS)) else ""
        return ""

    def _turn(self, holds: bool, reason: Reason) -> None:
        self.switches += holds != self.holds or self.reason == "unproven"
        self.holds, self.reason = holds, reason

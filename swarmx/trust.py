"""Whether a predictor is worth listening to: its losses beside those of the lengths observed per type."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS
from swarmx.types import Prediction

Array = NDArray[np.float64]
UPPER_LEVELS = LEVELS[LEVELS >= 0.5]
UPPER = LEVELS >= 0.5  # over-estimates hold calls back and under-estimates pile them up; both show in the upper half
WORST = 100.0  # a single loss counts as at most so many times the other side's running loss


@dataclass
class Trust:
    """Compares two predictions of each finished call by pinball loss over the upper half of the levels.

    slack : the predictor is listened to while its running loss is at most so many times that of the observed lengths
    enough : finished calls before anything is concluded; until then it is listened to, unless after a third of
        them it is `gross` times worse
    memory : calls over which the losses run; the predictor goes on being compared while nobody listens, so it comes
        back when it is good again
    most : calls in flight that are remembered
    """

    slack: float = 1.1
    enough: int = 30
    gross: float = 10.0
    memory: int = 200
    most: int = 100_000
    predictor_loss: float = 0.0
    observed_loss: float = 0.0
    compared: int = 0
    _open: OrderedDict[str, tuple[Array, Array]] = field(default_factory=OrderedDict)

    @property
    def holds(self) -> bool:
        """Whether the predictor's word counts."""
        if self.compared < self.enough:
            return 3 * self.compared < self.enough or self.predictor_loss <= self.gross * self.observed_loss
        return self.predictor_loss <= self.slack * self.observed_loss

    def asked(self, call_id: str, said: Prediction, plain: Prediction, max_tokens: int | None = None) -> Prediction:
        """Remember both, cut at max_tokens as the answer will be, and return the one that counts."""
        cut = np.inf if max_tokens is None else float(max_tokens)
        self._open[call_id] = (np.minimum(said.tokens.values, cut), np.minimum(plain.tokens.values, cut))
        if len(self._open) > self.most:
            self._open.popitem(last=False)
        return said if self.holds else plain

    def ended(self, call_id: str, output_tokens: float) -> None:
        """The call produced so many tokens. A call that was never asked about is ignored."""
        pair = self._open.pop(call_id, None)
        if pair is None:
            return
        said, plain = (_loss(values, output_tokens) for values in pair)
        self.compared += 1
        weight = 1 / min(self.compared, self.memory)
        self.observed_loss += (plain - self.observed_loss) * weight
        self.predictor_loss += (min(said, WORST * max(self.observed_loss, 1.0)) - self.predictor_loss) * weight

    def forget(self, call_id: str) -> None:
        """The call will tell nothing: it failed or was withdrawn."""
        self._open.pop(call_id, None)


def _loss(values: Array, output_tokens: float) -> float:
    """Mean pinball loss over the upper levels, as `swarmx.quantiles.pinball_loss` has it for all of them."""
    gap = output_tokens - values[UPPER]
    return float(np.maximum(UPPER_LEVELS * gap, (UPPER_LEVELS - 1) * gap).mean())

"""The Gittins index of a call's length distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.ordering.contract import Asked
from swarmx.quantiles import LEVELS, QuantileGrid, condition_on_age

STEPS = np.diff(LEVELS)


@dataclass(frozen=True, slots=True)
class Gittins:
    """Calls with the best chance to end per second spent first: the inverse index, in seconds, is the key.

    key = min over d of E[min(X, d)] / P(X <= d), X the tokens still to come, given those produced already. For a known
    length it is that length (SJF); for a heavy tail it is below the mean, because a call is likely to end early. Least
    mean wait in M/G/1 when calls may be interrupted (Gittins 1979; Aalto, Ayesta, Righter 2009).
    """

    def key(self, asked: Asked) -> float:
        values = asked.lengths.grid
        if asked.attained > 0:
            values = condition_on_age(QuantileGrid(LEVELS, values), asked.attained).values
        return inverse_index(values, asked.lengths.excess) * asked.token_s + asked.call.prompt_tokens * asked.prefill_s


def inverse_index(values: NDArray[np.float64], excess: float) -> float:
    """min over d of E[min(X, d)] / P(X <= d) for one grid (K,) on `LEVELS`; d at the grid's values or unbounded."""
    pieces = np.concatenate([[LEVELS[0] * values[0]], STEPS * (values[1:] + values[:-1]) / 2])
    below = np.cumsum(pieces)  # E[X; X <= v_k]
    truncated = below + (1 - LEVELS) * values
    whole = below[-1] + (1 - LEVELS[-1]) * (values[-1] + excess)
    return float(min(np.min(truncated / LEVELS), whole))

"""The numbers that are watched of a finished call: how bad its prediction was, and where in it the truth lay."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import mul

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Group = tuple[str, str, str]  # call type or prompt group, model, device; "*" stands for all of them, "" for none given
CELLS = 8  # per axis of the table from which the rank correlation is read
TOP = 1 - float(LEVELS[-1])
LEVELS_LIST: list[float] = LEVELS.tolist()
TAIL_LIST = [level for level in LEVELS_LIST if level >= 0.9]


def group_of(record: CallRecord) -> Group:
    """The group under which a finished call is watched: its type, else its prompt group; model; device."""
    return record.type or record.prompt_group or "", record.model, record.device or ""


@dataclass(frozen=True, slots=True)
class Scores:
    """loss : mean pinball loss over the levels from 0.9 up, over the predicted mean (no unit); place : level of the
    grid that the observation reached, beyond the last level along the exponential tail; log_ratio : log of (observed +
    1) / (predicted median + 1); predicted : mean"""

    loss: float
    place: float
    log_ratio: float
    predicted: float


def scores_of(values: Array, observed: float) -> Scores:
    """Scores of one grid (K,) on `LEVELS` against a finite observation >= 0; always finite.

    The loss is divided by what was predicted so that longer prompts, rightly predicted, do not look like a worse
    predictor: the mix of lengths within a group may change.
    """
    grid, observed = values.tolist(), float(observed)  # so few numbers are faster without numpy
    loss = sum(_pinball(level, observed - value) for level, value in zip(TAIL_LIST, grid[NINTH:], strict=True))
    predicted = sum(map(mul, grid, MEAN_LIST))
    scale = max(predicted, 1e-9)
    log_ratio = math.log1p(observed) - math.log1p(max(grid[MEDIAN], 0.0))
    return Scores(_finite(loss / len(TAIL_LIST) / scale), place_of(grid, observed), log_ratio, _finite(predicted))


def _pinball(level: float, gap: float) -> float:
    return max(level * gap, (level - 1) * gap)


def place_of(values: list[float], observed: float) -> float:
    """The level that the observation reached, in [0, 1]; the middle of the levels where the grid is flat there.

    Above the last level along the exponential tail, below the first one as a power of the level, see `low_power`.
    """
    low, high = bisect_left(values, observed), bisect_right(values, observed)
    if high > low:
        return (LEVELS_LIST[low] + LEVELS_LIST[high - 1]) / 2
    if low == 0:
        if not observed > 0 or not values[0] > 0:
            return 0.0
        below = math.log(observed) - math.log(values[0])  # the quotient may be smaller than any number
        return LEVELS_LIST[0] * math.exp(max(below / low_power(values), -700.0))
    if low == len(values):
        excess = max((values[-1] - values[NINTH]) / _RUN, 1e-9 * max(abs(values[-1]), 1.0))
        return 1 - TOP * math.exp(-min((observed - values[-1]) / excess, 700.0))
    share = (observed - values[low - 1]) / (values[low] - values[low - 1])
    return LEVELS_LIST[low - 1] + share * (LEVELS_LIST[low] - LEVELS_LIST[low - 1])


def low_power(values: list[float]) -> float:
    """a in value = v_0 (level / level_0)^a below the first level v_0: as the values fall from 0.1 to there."""
    if not values[0] > 0:
        return 1.0
    return max(math.log(values[TENTH] / values[0]) / _LOW_RUN, 1e-9)


def _finite(value: float) -> float:
    return value if abs(value) <= LARGEST else math.copysign(LARGEST, value)


LARGEST = 1e30  # a score beyond this is told as this; sums of them stay finite
MEDIAN = LEVELS_LIST.index(0.5)
NINTH = LEVELS_LIST.index(0.9)
TENTH = LEVELS_LIST.index(0.1)
_LOW_RUN = math.log(LEVELS_LIST[TENTH] / LEVELS_LIST[0])
_RUN = math.log((1 - LEVELS_LIST[NINTH]) / TOP)


def _mean_weights() -> Array:
    """w with grid.mean() == values @ w: the mean is linear in the values, and each unit step tells one weight."""
    steps = QuantileGrid(LEVELS, np.triu(np.ones((len(LEVELS), len(LEVELS)))))  # row i: 0 before i, 1 from i on
    means = steps.mean()
    weights: Array = means - np.append(means[1:], 0.0)
    return weights


MEAN = _mean_weights()
MEAN_LIST: list[float] = MEAN.tolist()

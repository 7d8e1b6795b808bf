"""A model with no rows or few borrows the known ones' predictions.

The head reads an unknown model as the known ones' mixture in the log. What it cannot know is by how much the
new one writes more or less; the known ones' own offsets say how much that may be, and widen its quantiles. Of a model
with few rows it knows a part: the ridge shrinks its offset towards the others'. By what its calls lie off out of fold,
its quantiles are moved. Numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
USUAL_SD = 0.5  # of log output tokens between models on the same prompts: 45 endpoints of a function-calling benchmark
USUAL_WEIGHT = 3  # models that this counts as, beside those of the log
FEW = 20.0  # rows of a model with which half of what they lie off is believed
MEDIAN = int(np.searchsorted(LEVELS, 0.5))
_SIGMAS = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS])


def spread(offsets: Sequence[float] | Array) -> float:
    """Standard deviation of a new model's offset, in log units, from the known models' (M,).

    The usual spread counts as three more models, so that two alike ones do not promise a third.
    """
    known = np.asarray(offsets, dtype=float)
    squares = float(((known - known.mean()) ** 2).sum()) if len(known) else 0.0
    return float(np.sqrt((USUAL_WEIGHT * USUAL_SD**2 + squares) / (USUAL_WEIGHT + max(len(known) - 1, 0))))


def offsets(gaps: Array, models: NDArray[np.int64], count: int, weights: Array) -> Array:
    """What is added to the log quantiles of each model, (count + 1,); 0 for the unknown one, id 0.

    gaps : (N,) observed logs less their predicted medians, out of fold; models : (N,) ids 1..count; weights : (N,) how
    much each row counts, one that repeats a prompt in part
    """
    out = np.zeros(count + 1)
    for model in range(1, count + 1):
        own, heed = gaps[models == model], weights[models == model]
        if heed.sum() <= 0:
            continue
        order = np.argsort(own, kind="stable")
        middle = own[order[int(np.searchsorted(np.cumsum(heed[order]), heed.sum() / 2))]]
        out[model] = middle * heed.sum() / (heed.sum() + FEW)
    return out


def widened(logs: Array, sd: float) -> Array:
    """Log quantiles (N, K) of each distribution plus an independent normal offset: distances from the median add in
    squares. The median stays, no level moves towards it, and the order of levels stays."""
    middle = logs[:, MEDIAN : MEDIAN + 1]
    return np.asarray(middle + np.sign(_SIGMAS) * np.hypot(logs - middle, _SIGMAS * sd))

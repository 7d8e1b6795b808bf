"""A model that the log did not hold borrows the known ones' predictions, widened by how much those differ.

The head reads an unknown model as the known ones' mixture in the log. What it cannot know is by how much the
new one writes more or less; the known ones' own offsets say how much that may be. Numpy only.
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
MEDIAN = int(np.searchsorted(LEVELS, 0.5))
_SIGMAS = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS])


def spread(offsets: Sequence[float] | Array) -> float:
    """Standard deviation of a new model's offset, in log units, from the known models' (M,).

    The usual spread counts as three more models, so that two alike ones do not promise a third.
    """
    known = np.asarray(offsets, dtype=float)
    squares = float(((known - known.mean()) ** 2).sum()) if len(known) else 0.0
    return float(np.sqrt((USUAL_WEIGHT * USUAL_SD**2 + squares) / (USUAL_WEIGHT + max(len(known) - 1, 0))))


def widened(logs: Array, sd: float) -> Array:
    """Log quantiles (N, K) of each distribution plus an independent normal offset: distances from the median add in
    squares. The median stays, no level moves towards it, and the order of levels stays."""
    middle = logs[:, MEDIAN : MEDIAN + 1]
    return np.asarray(middle + np.sign(_SIGMAS) * np.hypot(logs - middle, _SIGMAS * sd))

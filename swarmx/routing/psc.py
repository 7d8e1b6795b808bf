"""Prediction by a mean: least sum of predicted service times, one number per call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.counts import LeastOutstandingPerSpeed
from swarmx.routing.murakkab import Murakkab
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class PredictedServiceCost:
    """Least sum of the predicted mean service times outstanding there, and of the call's own.

    The sums of `Murakkab` with a mean for each call in place of one for its type; they do not change while a call runs.
    Whose mean it is, that of a linear regression, a random forest or boosted quantiles, is the predictor's affair: the
    policy sees `lengths.mean` alone.
    """

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        if not cluster.is_fitted:
            return LeastOutstandingPerSpeed().costs(waiting, cluster, usable, now, rng)
        return Murakkab().costs(waiting, cluster, usable, now, rng)

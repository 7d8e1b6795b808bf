"""Arrivals that follow a season (a day, a week): what the coming minutes bring against the last ones.

Off unless asked for: a forecast is worth having where the season moves the rate within one cold start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
MOST = 4.0  # a trend is cut to this factor and its inverse: what lies beyond is an error of the fit


@dataclass(frozen=True)
class Season:
    """rates : (B,) expected arrivals a second in equal bins of one season; season_s : its length
    start_s : a time at which a season began
    """

    rates: Array
    season_s: float
    start_s: float = 0.0

    def between(self, begin_s: float, end_s: float) -> float:
        """Mean expected rate from begin to end."""
        size = self.rates.size
        width = self.season_s / size
        edges = np.arange(np.floor((begin_s - self.start_s) / width), np.ceil((end_s - self.start_s) / width) + 1)
        low = np.maximum(edges[:-1] * width + self.start_s, begin_s)
        high = np.minimum(edges[1:] * width + self.start_s, end_s)
        share = np.maximum(high - low, 0.0)
        return float(self.rates[edges[:-1].astype(int) % size] @ share / max(share.sum(), 1e-9))

    def trend(self, now: float, past_s: float, edges_s: Array) -> Array:
        """(J,) factor on the rate of the last `past_s` for arrivals from now to the end of each window."""
        recent = self.between(now - past_s, now)
        coming = np.array([self.between(now, now + end) for end in edges_s[1:]])
        if recent <= 0:
            return np.ones(coming.size)
        return np.clip(coming / recent, 1 / MOST, MOST)


def fit_season(counts: ArrayLike, season_s: float, bins: int, start_s: float = 0.0) -> Season:
    """Exponential smoothing with an additive season on square roots of counts, whose noise is even.

    counts : (n,) arrivals per bin of `season_s / bins` seconds, oldest first, two seasons of them at least; the first
        bin begins a season, as `start_s` does
    Raises ValueError for fewer, ImportError naming the extra when statsmodels is missing.
    Winters (1960), Forecasting sales by exponentially weighted moving averages.
    """
    y = np.sqrt(np.asarray(counts, dtype=np.float64))
    if y.size < 2 * bins or bins < 2:
        raise ValueError(f"a season of {bins} bins needs at least {2 * bins} counts, got {y.size}")
    try:
        from statsmodels.tsa.holtwinters import ExponentialSmoothing
    except ImportError as problem:
        raise ImportError("seasons need statsmodels; install swarmx-scheduler[forecast]") from problem
    model = ExponentialSmoothing(y, seasonal="add", seasonal_periods=bins, initialization_method="heuristic")
    # fixed: the optimiser follows single noisy seasons, and needs a second for a day of bins
    fitted = model.fit(smoothing_level=0.1, smoothing_seasonal=0.2, optimized=False)
    ahead = np.maximum(fitted.forecast(bins), 0.0) ** 2
    shift = y.size % bins  # the forecast begins where the counts end
    return Season(np.roll(ahead, shift) / (season_s / bins), season_s, start_s)

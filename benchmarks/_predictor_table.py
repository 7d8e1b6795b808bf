"""From the splits of the predictor benchmark to its table: pinball, intervals, coverage with its interval, R2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from _predictor_split import Log, Split  # type: ignore[import-not-found]
from numpy.typing import NDArray

from swarmx.predict.metrics import REPORTED, mean_log
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
DRAWS = 400


def levels_of(values: Array) -> Array:
    """Levels of an arm's columns: all of the grid, or the reported ones."""
    return LEVELS if values.shape[1] == len(LEVELS) else np.array(REPORTED)


def pinball(values: Array, observed: Array) -> Array:
    """Loss of each row at the reported levels, (N, R)."""
    columns = values[:, [int(np.flatnonzero(np.isclose(levels_of(values), q))[0]) for q in REPORTED]]
    gap, levels = observed[:, None] - columns, np.array(REPORTED)
    loss: Array = np.maximum(levels * gap, (levels - 1) * gap)
    return loss


def table(log: Log, splits: Sequence[Split], target: str, seed: int = 0) -> dict[str, Any]:
    """Metrics of each arm over the splits that it was in, and swarmx's pinball over its on the same ones:
    [ratio, 2.5 %, 97.5 %] over groups."""
    arms = {arm: None for split in splits for arm in split.arms[target]}
    return {arm: _row(log, [split for split in splits if arm in split.arms[target]], target, arm, seed) for arm in arms}


def _row(log: Log, splits: Sequence[Split], target: str, arm: str, seed: int) -> dict[str, Any]:
    rows = np.concatenate([split.out for split in splits])
    observed = log.wanted.column(target)[rows]
    names, place = np.unique(log.groups[rows], return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS)

    def by_group(values: Array) -> Array:
        return np.stack([np.bincount(place, part, len(names)) for part in values.T], axis=1)

    own, values = (np.concatenate([split.arms[target][name] for split in splits]) for name in ("swarmx", arm))
    ours, theirs = (by_group(pinball(grids, observed)) for grids in (own, values))
    ratio = ours.sum(0) / np.maximum(theirs.sum(0), 1e-12)
    spread = (draws @ ours) / np.maximum(draws @ theirs, 1e-12)
    low, high = np.quantile(spread, (0.025, 0.975), axis=0)
    return {
        "splits": len(splits),
        "pinball": {f"{q:g}": float(v) for q, v in zip(REPORTED, theirs.sum(0) / len(rows), strict=True)},
        "swarmx_over_this": {
            f"{q:g}": [round(float(x[i]), 4) for x in (ratio, low, high)] for i, q in enumerate(REPORTED)
        },
    } | _calibration(values, observed, by_group, draws)


def _calibration(values: Array, observed: Array, by_group: Any, draws: NDArray[np.int64]) -> dict[str, Any]:
    """Coverage and its interval, exceedances over nominal with theirs, R2 of the log, mean width over the median."""
    levels = levels_of(values)
    below = by_group((observed[:, None] <= values).astype(float))
    size = by_group(np.ones((len(observed), 1)))
    share = below.sum(0) / size.sum()
    low, high = np.quantile((draws @ below) / (draws @ size), (0.025, 0.975), axis=0)
    logs, truth = np.log1p(values), np.log1p(observed)
    full = len(levels) == len(LEVELS)
    guess = mean_log(values) if full else logs[:, 0]
    spread = max(float(((truth - truth.mean()) ** 2).mean()), 1e-12)
    middle = int(np.flatnonzero(np.isclose(levels, 0.5))[0])
    top, nine = levels.tolist().index(0.95), levels.tolist().index(0.9)
    return {
        "coverage": _named(levels, share),
        "coverage_interval": {f"{q:g}": [float(a), float(b)] for q, a, b in zip(levels, low, high, strict=True)},
        "exceedance_ratio": {
            f"{q:g}": float((1 - s) / (1 - q)) for q, s in zip(levels, share, strict=True) if q >= 0.95
        },
        "exceedance_interval": {
            f"{q:g}": [float((1 - b) / (1 - q)), float((1 - a) / (1 - q))]
            for q, a, b in zip(levels, low, high, strict=True) if q >= 0.95
        },
        "r2_log": 1 - float(((truth - guess) ** 2).mean()) / spread,
        "r2_log_median": 1 - float(((truth - logs[:, middle]) ** 2).mean()) / spread,
        "sharpness": {"0.9": float(np.mean(logs[:, nine] - logs[:, middle])),
                      "0.95": float(np.mean(logs[:, top] - logs[:, middle]))},
    }  # fmt: skip


def _named(levels: Array, values: Array) -> dict[str, float]:
    return {f"{q:g}": float(v) for q, v in zip(levels, values, strict=True)}

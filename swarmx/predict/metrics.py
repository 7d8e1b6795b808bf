"""How good a grid of quantiles is on rows it has not seen: pinball against baselines, coverage, R2 of the log."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS, QuantileGrid, pinball_loss

Array = NDArray[np.float64]
REPORTED = (0.5, 0.9, 0.95, 0.99)
GROUP_ROWS = 30  # rows below which a group's own figures say nothing


def pinball_at(values: Array, observed: Array) -> dict[str, float]:
    """Mean pinball loss at the reported levels, in the unit of the values (N, K)."""
    loss = pinball_loss(QuantileGrid(LEVELS, values), observed).mean(axis=0)
    return {f"{level:g}": float(loss[_place(level)]) for level in REPORTED}


def coverage(values: Array, observed: Array) -> dict[str, float]:
    """Share of rows at or below each level's value; ideally the level."""
    below = (observed[:, None] <= values).mean(axis=0)
    return {f"{level:g}": float(share) for level, share in zip(LEVELS, below, strict=True)}


def exceedance_ratio(values: Array, observed: Array) -> dict[str, float]:
    """Share of rows above each tail level's value over the share that should be; ideally 1."""
    above = (observed[:, None] > values).mean(axis=0)
    return {
        f"{level:g}": float(share / (1 - level)) for level, share in zip(LEVELS, above, strict=True) if level >= 0.95
    }


def r2_log(values: Array, observed: Array) -> float:
    """1 - squared error of the median's log(1 + value) over the variance of the observed one's."""
    truth = np.log1p(observed)
    guess = np.log1p(values[:, _place(0.5)])
    return float(1 - ((truth - guess) ** 2).mean() / max(float(truth.var()), 1e-12))


def mean_log(values: Array) -> Array:
    """Mean of log(1 + value) of each distribution (N, K), (N,): the guess of least squared error, where the median is
    that of least absolute error. Between levels it is linear, beyond the first and the last it is flat."""
    edges = np.concatenate(([0.0], (LEVELS[1:] + LEVELS[:-1]) / 2, [1.0]))
    mean: Array = np.log1p(values) @ np.diff(edges)
    return mean


def sharpness(values: Array) -> dict[str, float]:
    """How wide the grids are: mean log of a level's value over the median's; coverage says whether that is honest."""
    logs = np.log1p(values)
    return {f"{q:g}": float(abs(logs[:, _place(q)] - logs[:, _place(0.5)]).mean()) for q in (0.1, 0.9, 0.95, 0.99)}


def by_group(values: Array, observed: Array, keys: Sequence[Hashable], baseline: Array) -> dict[str, dict[str, Any]]:
    """Rows, coverage, and pinball over the baseline's, of each key with `GROUP_ROWS` rows; None is no key."""
    out: dict[str, dict[str, Any]] = {}
    for key in sorted({key for key in keys if key is not None}, key=str):
        at = np.array([i for i, own in enumerate(keys) if own == key])
        if len(at) < GROUP_ROWS:
            continue
        own, theirs = pinball_at(values[at], observed[at]), pinball_at(baseline[at], observed[at])
        out[str(key)] = {
            "rows": len(at),
            "coverage": {q: s for q, s in coverage(values[at], observed[at]).items() if float(q) in REPORTED},
            "pinball_ratio": {q: own[q] / theirs[q] if theirs[q] > 0 else 1.0 for q in own},
        }
    return out


def report(values: Array, observed: Array, baselines: Mapping[str, Array]) -> dict[str, Any]:
    """All of the above for one target, with the ratio to each baseline's pinball (below 1 is better than it).

    values : (N, K); observed : (N,); baselines : name -> (N, K)
    """
    own = pinball_at(values, observed)
    out: dict[str, Any] = {
        "rows": len(observed),
        "pinball": own,
        "coverage": coverage(values, observed),
        "exceedance_ratio": exceedance_ratio(values, observed),
        "r2_log": r2_log(values, observed),
        "sharpness": sharpness(values),
        "baselines": {},
    }
    for name, grids in baselines.items():
        theirs = pinball_at(grids, observed)
        ratio = {level: own[level] / theirs[level] if theirs[level] > 0 else 1.0 for level in own}
        out["baselines"][name] = {"pinball": theirs, "pinball_ratio": ratio, "sharpness": sharpness(grids)}
    return out


def _place(level: float) -> int:
    return int(np.flatnonzero(np.isclose(LEVELS, level))[0])

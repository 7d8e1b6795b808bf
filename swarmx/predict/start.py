"""Quantiles to begin with: what was seen where the ridge predicted about the same, and what was seen of the type.

Bins of the prediction carry what a pooled residual cannot, spread that grows with the length and targets that are often
exactly zero. Both parts are cross-fitted: what a training row starts from was computed without its fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.mixing import best_shares, mixed
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
BIN_ROWS = 60  # fewer bins where there would be fewer rows of different texts in one
TYPE_ROWS = 20  # rows before a type has quantiles of its own


@dataclass(frozen=True, slots=True)
class Bins:
    """centre : (B,) increasing; table : (B, K) residual quantiles"""

    centre: Array
    table: Array

    def at(self, ridge: Array) -> Array:
        """Log quantiles of each ridge prediction, (N, K): linear between the middles, flat outside."""
        last = len(self.centre) - 1
        place = np.clip(np.searchsorted(self.centre, ridge, side="right") - 1, 0, max(last - 1, 0))
        after = np.minimum(place + 1, last)
        gap = np.maximum(self.centre[after] - self.centre[place], 1e-12)
        share = np.clip((ridge - self.centre[place]) / gap, 0.0, 1.0)[:, None]
        grids: Array = ridge[:, None] + (1 - share) * self.table[place] + share * self.table[after]
        return grids


def fit_bins(ridge: Array, logs: Array, bins: int, novelty: float = 1.0) -> Bins:
    """Residual quantiles in `bins` bins of equal count, (N,) and (N,); thin or equal bins repeat their neighbour.

    novelty : different texts over rows; repeated runs of one prompt say little new
    """
    wanted = int(np.clip(len(ridge) * novelty // BIN_ROWS, 1, bins))
    parts = np.array_split(np.argsort(ridge, kind="stable"), wanted)
    centre = np.array([ridge[part].mean() for part in parts])
    table = np.array([np.quantile(logs[part] - ridge[part], LEVELS) for part in parts])
    extra = bins - wanted
    centre = np.concatenate((centre, centre[-1] + np.arange(1, extra + 1)))
    table = np.concatenate((table, np.repeat(table[-1:], extra, axis=0)))
    return Bins(np.maximum.accumulate(centre + 1e-5 * np.arange(bins)), table)


def fit_types(type_id: NDArray[np.int64], logs: Array, types: int) -> Array:
    """Log quantiles of each type, (types + 1, K); those of all rows for rare types and for row 0."""
    pool = np.quantile(logs, LEVELS)
    rows = [np.flatnonzero(type_id == t) for t in range(types + 1)]
    return np.array(
        [np.quantile(logs[at], LEVELS) if t and len(at) >= TYPE_ROWS else pool for t, at in enumerate(rows)]
    )


@dataclass(frozen=True, slots=True)
class Started:
    """One target's start. bins : (typed, untyped); by_type : (types + 1, K); trust : (K,) weight of the bins;
    rows : (2, N, K) cross-fitted start of the training rows, with their types and without"""

    bins: tuple[Bins, Bins]
    by_type: Array
    trust: Array
    rows: Array


def fit_start(
    ridge: Array, logs: Array, type_id: NDArray[np.int64], types: int, fold: NDArray[np.int64], bins: int,
    novelty: float = 1.0,
) -> Started:  # fmt: skip
    """Fit one target. ridge : (2, N) out of fold, with types and without; logs : (N,); novelty : as in `fit_bins`"""
    near, kind = np.empty((2, len(logs), len(LEVELS))), np.empty((len(logs), len(LEVELS)))
    for k in np.unique(fold):
        inside, out = fold != k, fold == k
        for mode in (0, 1):
            near[mode, out] = fit_bins(ridge[mode, inside], logs[inside], bins, novelty).at(ridge[mode, out])
        kind[out] = fit_types(type_id[inside], logs[inside], types)[type_id[out]]
    known = type_id > 0
    trust = best_shares(near[0, known], kind[known], logs[known]) if known.any() else np.ones(len(LEVELS))
    typed = np.where(known[:, None], mixed(near[0], kind, trust), near[1])
    whole = (fit_bins(ridge[0], logs, bins, novelty), fit_bins(ridge[1], logs, bins, novelty))
    return Started(whole, fit_types(type_id, logs, types), trust, np.stack((typed, near[1])))

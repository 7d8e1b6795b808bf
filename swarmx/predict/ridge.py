"""Ridge regression on dense and hashed features by preconditioned conjugate gradients; scales with the non-zeros.

One pass of folds gives the strength and, at once, the out-of-fold predictions that the network learns from: a network
fed with predictions of rows the ridge has seen would trust them too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
STRENGTHS = (30.0, 10.0, 3.0, 1.0, 0.3)  # strong to weak, each solved from the one before
TRIED = 3  # folds on which strengths are compared; the others are fitted with the best alone
TOLERANCE = 5e-3  # of the residual's norm; 1e-3 takes twice as long and moves R2 by 0.0004


@dataclass(frozen=True, slots=True)
class Design:
    """Rows of features, (N, D), float32: dense columns first, then sparse ones; each kept as it multiplies fastest."""

    dense: NDArray[np.float32]
    sparse: csr_array

    def rows(self, chosen: NDArray[np.int64]) -> Design:
        return Design(self.dense[chosen], self.sparse[chosen])

    def times(self, w: Array) -> Array:
        """(D, T) -> (N, T)"""
        cut = self.dense.shape[1]
        w = w.astype(np.float32)
        product: Array = (self.dense @ w[:cut] + self.sparse @ w[cut:]).astype(np.float64)
        return product

    def back(self, r: Array) -> Array:
        """Transposed: (N, T) -> (D, T)"""
        r = r.astype(np.float32)
        return np.concatenate((self.dense.T @ r, self.sparse.T @ r)).astype(np.float64)

    def squares(self) -> Array:
        """Sum of squares of each column, (D, 1)."""
        sparse = np.asarray(self.sparse.multiply(self.sparse).sum(axis=0)).ravel()
        return np.concatenate(((self.dense**2).sum(axis=0), sparse))[:, None]


@dataclass(frozen=True, slots=True)
class Ridge:
    """weights : (D, T); intercept : (T,); strengths : (T,) chosen; out_of_fold : (N, T); r2 : (T,) of those"""

    weights: Array
    intercept: Array
    strengths: Array
    out_of_fold: Array
    r2: Array


def fit_ridge(
    x: Design, y: Array, fold: NDArray[np.int64], used: NDArray[np.bool_], strengths: tuple[float, ...] = STRENGTHS
) -> Ridge:
    """Fit every target, its strength chosen on `TRIED` of the folds.

    y : (N, T); fold : (N,) fold of each row, whole groups; used : (D, T) features that each target may use
    """
    names = np.unique(fold)
    tried = [_fold(x, y, fold == k, used, [np.full(y.shape[1], s) for s in strengths]) for k in names[:TRIED]]
    rows = np.concatenate([np.flatnonzero(fold == k) for k in names[:TRIED]])
    error = ((np.concatenate(tried, axis=1) - y[rows]) ** 2).mean(axis=1)  # (S, T)
    best = error.argmin(axis=0)
    chosen = np.array(strengths)[best]
    out = np.empty(y.shape)
    for k, trial in zip(names[:TRIED], tried, strict=True):
        out[fold == k] = np.take_along_axis(trial, best[None, None, :], axis=0)[0]
    for k in names[TRIED:]:
        out[fold == k] = _fold(x, y, fold == k, used, [chosen])[0]
    middle = y.mean(axis=0)
    return Ridge(
        weights=solve(x, y - middle, chosen, used),
        intercept=middle,
        strengths=chosen,
        out_of_fold=out,
        r2=1 - ((out - y) ** 2).mean(axis=0) / np.maximum(y.var(axis=0), 1e-12),
    )


def _fold(x: Design, y: Array, out: NDArray[np.bool_], used: NDArray[np.bool_], strengths: Sequence[Array]) -> Array:
    """Predictions of the rows left out, one block per strength, (S, n, T)."""
    inside = np.flatnonzero(~out)
    part, rest, middle = x.rows(inside), x.rows(np.flatnonzero(out)), y[inside].mean(axis=0)
    weights, blocks = None, []
    for strength in strengths:
        weights = solve(part, y[inside] - middle, strength, used, weights)
        blocks.append(rest.times(weights) + middle)
    return np.stack(blocks)


def solve(
    x: Design, y: Array, strength: Array, used: NDArray[np.bool_], start: Array | None = None, steps: int = 150
) -> Array:
    """Weights (D, T) minimising |x w - y|^2 + strength |w|^2 of each column, by conjugate gradients from `start`.

    Hestenes and Stiefel (1952), Methods of Conjugate Gradients; diagonal preconditioner.
    """
    scale = used / (x.squares() + strength)  # (D, T)
    w = np.zeros(scale.shape) if start is None else start.copy()
    target = x.back(y) * used
    r = target - (x.back(x.times(w)) + strength * w) * used
    z = scale * r
    p, rz = z.copy(), (r * z).sum(axis=0)
    enough = TOLERANCE * np.sqrt((target**2).sum(axis=0)) + 1e-9
    for _ in range(steps):
        if np.all(np.sqrt((r**2).sum(axis=0)) <= enough):
            break
        q = (x.back(x.times(p)) + strength * p) * used
        step = rz / np.maximum((p * q).sum(axis=0), 1e-300)
        w += step * p
        r -= step * q
        z = scale * r
        after = (r * z).sum(axis=0)
        p = z + (after / np.maximum(rz, 1e-300)) * p
        rz = after
    return w

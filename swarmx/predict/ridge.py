"""Ridge regression on dense and hashed features by preconditioned conjugate gradients; scales with the non-zeros.

One pass of folds gives the strength and, at once, the out-of-fold predictions that the network learns from: a network
fed with predictions of rows the ridge has seen would trust them too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
STRENGTHS = (100.0, 30.0, 10.0, 3.0, 1.0)  # strong to weak, each solved from the one before


@dataclass(frozen=True, slots=True)
class Design:
    """Rows of features, (N, D): dense columns first, then sparse ones; each kept as it multiplies fastest."""

    dense: Array
    sparse: csr_array

    def rows(self, chosen: NDArray[np.int64]) -> Design:
        return Design(self.dense[chosen], self.sparse[chosen])

    def times(self, w: Array) -> Array:
        """(D, T) -> (N, T)"""
        cut = self.dense.shape[1]
        product: Array = self.dense @ w[:cut] + self.sparse @ w[cut:]
        return product

    def back(self, r: Array) -> Array:
        """Transposed: (N, T) -> (D, T)"""
        return np.concatenate((self.dense.T @ r, self.sparse.T @ r))

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


def fit_ridge(x: Design, y: Array, fold: NDArray[np.int64], strengths: tuple[float, ...] = STRENGTHS) -> Ridge:
    """Fit every target, its strength chosen by the folds.

    y : (N, T); fold : (N,) fold of each row, whole groups
    """
    tried = np.empty((len(strengths), *y.shape))
    for k in np.unique(fold):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        part, rest, middle = x.rows(inside), x.rows(outside), y[inside].mean(axis=0)
        weights = None
        for s, strength in enumerate(strengths):
            weights = solve(part, y[inside] - middle, np.full(y.shape[1], strength), weights)
            tried[s, outside] = rest.times(weights) + middle
    error = ((tried - y) ** 2).mean(axis=1)  # (S, T)
    best = error.argmin(axis=0)
    chosen, middle = np.array(strengths)[best], y.mean(axis=0)
    return Ridge(
        weights=solve(x, y - middle, chosen, None),
        intercept=middle,
        strengths=chosen,
        out_of_fold=np.take_along_axis(tried, best[None, None, :], axis=0)[0],
        r2=1 - error.min(axis=0) / np.maximum(y.var(axis=0), 1e-12),
    )


def solve(
    x: Design, y: Array, strength: Array, start: Array | None, steps: int = 150, tolerance: float = 1e-3
) -> Array:
    """Weights (D, T) minimising |x w - y|^2 + strength |w|^2 of each column, by conjugate gradients from `start`.

    Hestenes and Stiefel (1952), Methods of Conjugate Gradients; diagonal preconditioner.
    """
    scale = 1 / (x.squares() + strength)  # (D, T)
    w = np.zeros(scale.shape) if start is None else start.copy()
    target = x.back(y)
    r = target - x.back(x.times(w)) - strength * w
    z = scale * r
    p, rz = z.copy(), (r * z).sum(axis=0)
    enough = tolerance * np.sqrt((target**2).sum(axis=0)) + 1e-12
    for _ in range(steps):
        if np.all(np.sqrt((r**2).sum(axis=0)) <= enough):
            break
        q = x.back(x.times(p)) + strength * p
        step = rz / np.maximum((p * q).sum(axis=0), 1e-300)
        w += step * p
        r -= step * q
        z = scale * r
        after = (r * z).sum(axis=0)
        p = z + (after / np.maximum(rz, 1e-300)) * p
        rz = after
    return w

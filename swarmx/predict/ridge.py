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
STRENGTHS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)  # strong to weak, each solved from the one before
TRIED = 3  # folds on which strengths are compared; the others are fitted with the best alone
FEW = 4_000  # rows up to which they are compared on all folds
TOLERANCE = 5e-3  # of the preconditioned residual's norm
SEARCHED = 20_000  # rows on which strengths are compared; of a longer log only the first scales are tried


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
        """Sum of squares of each sparse column, (D - dense, 1)."""
        return np.asarray(self.sparse.multiply(self.sparse).sum(axis=0), dtype=np.float64).reshape(-1, 1)


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """The dense columns' part of the normal equations, decomposed once for all strengths.

    kinds : (T,) which of the spectra a target has; spectra : columns in use, eigenvalues and eigenvectors of each kind
    """

    kinds: NDArray[np.int64]
    spectra: tuple[tuple[NDArray[np.int64], Array, Array], ...]

    @classmethod
    def of(cls, x: Design, scale: Array) -> DenseBlock:
        """scale : (D, T)"""
        gram = (x.dense.T @ x.dense).astype(np.float64)
        different, kinds = np.unique(scale[: x.dense.shape[1]], axis=1, return_inverse=True)
        spectra = []
        for own in different.T:
            columns = np.flatnonzero(own)
            values, vectors = np.linalg.eigh(gram[np.ix_(columns, columns)] * np.outer(own[columns], own[columns]))
            spectra.append((columns, np.maximum(values, 0.0), vectors))
        return cls(kinds.reshape(-1), tuple(spectra))

    def solve(self, r: Array, strength: Array) -> Array:
        """(gram + strength)^-1 r of each target, zero at unused columns; r : (dense, T)"""
        out = np.zeros(r.shape)
        for kind, (columns, values, vectors) in enumerate(self.spectra):
            own = np.flatnonzero(self.kinds == kind)
            turned = vectors.T @ r[np.ix_(columns, own)]
            out[np.ix_(columns, own)] = vectors @ (turned / (values[:, None] + strength[own]))
        return out


@dataclass(frozen=True, slots=True)
class Ridge:
    """weights : (D, T); intercept : (T,); strengths : (T,) chosen; out_of_fold : (N, T); r2 : (T,) of those;
    scales : (T,) place of the scales chosen among those tried"""

    weights: Array
    intercept: Array
    strengths: Array
    out_of_fold: Array
    r2: Array
    scales: NDArray[np.int64]


def fit_ridge(
    x: Design, y: Array, fold: NDArray[np.int64], scales: Sequence[Array], strengths: tuple[float, ...] = STRENGTHS
) -> Ridge:
    """Fit every target, strength and scales of its features chosen on `TRIED` of the folds, with few rows on all.

    With one strength given, it and the first scales are taken.
    y : (N, T); fold : (N,) fold of each row, whole groups
    scales : each (D, T), factors of the features for each target, 0 for those that it may not use
    """
    place, chosen = _best(x, y, fold, scales, strengths)
    scale = np.stack(scales)[place, :, np.arange(y.shape[1])].T  # (D, T)
    out = np.empty(y.shape)
    for k in np.unique(fold):
        out[fold == k] = _fold(x, y, fold == k, scale, [chosen])[0]
    middle = y.mean(axis=0)
    return Ridge(
        weights=solve(x, y - middle, chosen, scale),
        intercept=middle,
        strengths=chosen,
        out_of_fold=out,
        r2=1 - ((out - y) ** 2).mean(axis=0) / np.maximum(y.var(axis=0), 1e-12),
        scales=place,
    )


def _best(
    x: Design, y: Array, fold: NDArray[np.int64], scales: Sequence[Array], strengths: tuple[float, ...]
) -> tuple[NDArray[np.int64], Array]:
    """Place of the best scales and the best strength of each target, both (T,), on rows spread over the log."""
    targets = np.arange(y.shape[1])
    if len(strengths) == 1:
        return np.zeros(len(targets), np.int64), np.full(len(targets), strengths[0])
    rows = np.arange(len(y))[:: max(1, -(-len(y) // SEARCHED))]
    scales = scales[:1] if len(rows) < len(y) else scales
    x, y, fold = x.rows(rows), y[rows], fold[rows]
    names = np.unique(fold)[: None if len(rows) <= FEW else TRIED]
    wanted = [np.full(len(targets), s) for s in strengths]
    errors = np.zeros((len(scales), len(strengths), len(targets)))
    for place, scale in enumerate(scales):
        for k in names:
            errors[place] += ((_fold(x, y, fold == k, scale, wanted) - y[fold == k]) ** 2).sum(axis=1)
    place, strength = np.unravel_index(errors.reshape(-1, len(targets)).argmin(axis=0), errors.shape[:2])
    return place.astype(np.int64), np.array(strengths)[strength]


def _fold(x: Design, y: Array, out: NDArray[np.bool_], scale: Array, strengths: Sequence[Array]) -> Array:
    """Predictions of the rows left out, one block per strength, (S, n, T)."""
    inside = np.flatnonzero(~out)
    part, rest, middle = x.rows(inside), x.rows(np.flatnonzero(out)), y[inside].mean(axis=0)
    weights, blocks, dense = None, [], DenseBlock.of(part, scale)
    for strength in strengths:
        weights = solve(part, y[inside] - middle, strength, scale, weights, dense)
        blocks.append(rest.times(weights) + middle)
    return np.stack(blocks)


def solve(
    x: Design, y: Array, strength: Array, scale: Array, start: Array | None = None,
    dense: DenseBlock | None = None, steps: int = 60,
) -> Array:  # fmt: skip
    """Weights w = scale v, (D, T), minimising |x w - y|^2 + strength |v|^2 of each column, by conjugate gradients from
    `start`.

    scale : (D, T); dense : of these rows and scales, where it is known already
    Hestenes and Stiefel (1952), Methods of Conjugate Gradients. The preconditioner is exact on the dense columns, which
    are strongly correlated, and diagonal on the sparse ones; with a diagonal alone 150 steps did not do and lost
    0.05 of R2 on real calls.
    """
    block = dense or DenseBlock.of(x, scale)
    cut = x.dense.shape[1]
    near = (scale[cut:] > 0) / (scale[cut:] ** 2 * x.squares() + strength)  # (D - cut, T)

    def preconditioned(r: Array) -> Array:
        return np.concatenate((block.solve(r[:cut], strength), near * r[cut:]))

    v = np.zeros(scale.shape) if start is None else np.divide(start, scale, out=np.zeros(scale.shape), where=scale > 0)
    target = x.back(y) * scale
    r = target - (x.back(x.times(scale * v)) * scale + strength * v)
    z = preconditioned(r)
    p, rz = z.copy(), (r * z).sum(axis=0)
    enough = TOLERANCE**2 * (target * preconditioned(target)).sum(axis=0) + 1e-12
    for _ in range(steps):
        if np.all(rz <= enough):
            break
        q = x.back(x.times(scale * p)) * scale + strength * p
        step = rz / np.maximum((p * q).sum(axis=0), 1e-300)
        v += step * p
        r -= step * q
        z = preconditioned(r)
        after = (r * z).sum(axis=0)
        p = z + (after / np.maximum(rz, 1e-300)) * p
        rz = after
    return scale * v

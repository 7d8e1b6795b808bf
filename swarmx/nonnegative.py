"""Least squares of a few unknowns that must not be negative, compiled: it is solved between two decisions."""

from __future__ import annotations

import numpy as np
from numba import njit

ROUNDING = 1e-9  # of a gradient whose terms are about 1


@njit(cache=True)
def accumulate(gram, moment, row, keep):  # type: ignore[no-untyped-def]
    """Forget a little of the sums, then add one row of regressors (n,) whose target is 1; changes both in place."""
    n = moment.size
    for i in range(n):
        for j in range(n):
            gram[i, j] = gram[i, j] * keep + row[i] * row[j]
        moment[i] = moment[i] * keep + row[i]


@njit(cache=True)
def fit(gram, moment, prior, weight, ridge, out):  # type: ignore[no-untyped-def]
    """Non-negative solution of the sums of `accumulate` and of a prior with its weights; in units of 1.

    ridge : (n,) added to the diagonal after scaling it to 1
    out : (n,) the solution, zeros where the first regressor never varied from 0; to return a new array would take a
        third of the time, for it is made by code that is not in any cache by then
    """
    n = moment.size
    scale, ridged, scaled = np.ones(n), np.empty((n, n)), np.empty(n)
    out[:] = 0.0
    if gram[0, 0] + weight[0] == 0.0:
        return
    for i in range(n):
        diagonal = gram[i, i] + weight[i]
        if diagonal > 0.0:
            scale[i] = np.sqrt(diagonal)
    for i in range(n):
        for j in range(n):
            ridged[i, j] = gram[i, j] / (scale[i] * scale[j])
        ridged[i, i] += weight[i] / scale[i] ** 2 + ridge[i]
        scaled[i] = (moment[i] + weight[i] * prior[i]) / scale[i]
    out[:] = solve_non_negative(ridged, scaled) / scale


@njit(cache=True)
def solve_non_negative(gram, moment):  # type: ignore[no-untyped-def]
    """argmin of t' gram t - 2 moment' t over t >= 0, by looking at every set of active coordinates, the largest first.

    gram : (n, n) positive semidefinite, diagonal about 1; moment : (n,); n small, since there are 2^n - 1 sets
    The first set whose solution is not negative, and from which no further coordinate would lower the loss, is the
    optimum: the loss is convex. Returns zeros when every set is singular.
    """
    n = moment.size
    best, least = np.zeros(n), np.inf
    t, index, left = np.empty(n), np.empty(n, np.int64), np.empty((n, n + 1))
    for size in range(n, 0, -1):
        for chosen in range(1, 1 << n):
            if _members(chosen, index) != size or not _on_set(gram, moment, index[:size], left, t) or t.min() < 0.0:
                continue
            loss, steepest = _loss(gram, moment, t)
            if steepest >= -ROUNDING:
                return t
            if loss < least:
                best[:], least = t, loss
    return best


@njit(cache=True)
def _loss(gram, moment, t):  # type: ignore[no-untyped-def]
    """(Loss at the optimum of a set, least coordinate of the gradient). Loops: what BLAS has for four numbers is slow
    where it is called rarely."""
    loss, steepest = 0.0, np.inf
    for i in range(t.size):
        slope = -moment[i]
        for j in range(t.size):
            slope += gram[i, j] * t[j]
        loss -= t[i] * moment[i]
        steepest = min(steepest, slope)
    return loss, steepest


@njit(cache=True)
def _members(chosen, index):  # type: ignore[no-untyped-def]
    """Write the places of the bits that are set to `index`; returns how many there are."""
    found = 0
    for i in range(index.size):
        if chosen >> i & 1:
            index[found] = i
            found += 1
    return found


@njit(cache=True)
def _on_set(gram, moment, index, left, out):  # type: ignore[no-untyped-def]
    """Solution `out` with all coordinates but those of `index` 0, by Gaussian elimination with pivots; whether there is
    one.

    left : (n, n + 1), where it is worked out
    """
    k = index.size
    for i in range(k):
        for j in range(k):
            left[i, j] = gram[index[i], index[j]]
        left[i, k] = moment[index[i]]
    for i in range(k):
        pivot = i
        for j in range(i + 1, k):
            if abs(left[j, i]) > abs(left[pivot, i]):
                pivot = j
        if abs(left[pivot, i]) < 1e-14:
            return False
        for c in range(i, k + 1):
            left[i, c], left[pivot, c] = left[pivot, c], left[i, c]
        for j in range(i + 1, k):
            factor = left[j, i] / left[i, i]
            for c in range(i, k + 1):
                left[j, c] -= left[i, c] * factor
    out[:] = 0.0
    for i in range(k - 1, -1, -1):
        total = left[i, k]
        for j in range(i + 1, k):
            total -= left[i, j] * out[index[j]]
        out[index[i]] = total / left[i, i]
    return True

"""Least squares of a few unknowns that must not be negative, compiled: it is solved between two decisions."""

from __future__ import annotations

import numpy as np
from numba import njit

ROUNDING = 1e-9  # of a gradient whose terms are about 1


@njit(cache=True)
def solve_non_negative(gram, moment):  # type: ignore[no-untyped-def]
    """argmin of t' gram t - 2 moment' t over t >= 0, by looking at every set of active coordinates, the largest first.

    gram : (n, n) positive semidefinite, diagonal about 1; moment : (n,); n small, since there are 2^n - 1 sets
    The first set whose solution is not negative, and from which no further coordinate would lower the loss, is the
    optimum: the loss is convex. Returns zeros when every set is singular.
    """
    n = moment.size
    best, least = np.zeros(n), np.inf
    for size in range(n, 0, -1):
        for chosen in range(1, 1 << n):
            if _count(chosen) != size:
                continue
            t = _on_set(gram, moment, chosen)
            if not np.isfinite(t[0]) or t.min() < 0.0:
                continue
            gradient = gram @ t - moment
            if gradient.min() >= -ROUNDING:
                return t
            loss = -float(np.dot(t, moment))
            if loss < least:
                best, least = t, loss
    return best


@njit(cache=True)
def _count(chosen):  # type: ignore[no-untyped-def]
    found = 0
    while chosen:
        found += chosen & 1
        chosen >>= 1
    return found


@njit(cache=True)
def _on_set(gram, moment, chosen):  # type: ignore[no-untyped-def]
    """Solution with all coordinates outside the set 0, by Gaussian elimination with pivots; infinite where singular."""
    n = moment.size
    index = np.array([i for i in range(n) if chosen >> i & 1])
    k = index.size
    left = np.empty((k, k + 1))
    for i in range(k):
        for j in range(k):
            left[i, j] = gram[index[i], index[j]]
        left[i, k] = moment[index[i]]
    out = np.zeros(n)
    for i in range(k):
        pivot = i + np.argmax(np.abs(left[i:, i]))
        if abs(left[pivot, i]) < 1e-14:
            out[:] = np.inf
            return out
        if pivot != i:
            row = left[i].copy()
            left[i] = left[pivot]
            left[pivot] = row
        for j in range(i + 1, k):
            left[j] -= left[i] * (left[j, i] / left[i, i])
    for i in range(k - 1, -1, -1):
        total = left[i, k]
        for j in range(i + 1, k):
            total -= left[i, j] * out[index[j]]
        out[index[i]] = total / left[i, i]
    return out

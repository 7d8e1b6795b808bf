"""Compiled arithmetic of `swarmx.trust`: two losses and, now and then, a rank correlation with every finished call."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def losses(levels, said, plain, most, first, observed):  # type: ignore[no-untyped-def]
    """Mean pinball losses over the levels from index `first` on of two grids (K,), each cut at `most`.

    Returns (loss of `said`, loss of `plain`, value of `said` at level `first`).
    """
    return (
        _pinball(levels, said, most, first, observed),
        _pinball(levels, plain, most, first, observed),
        min(said[first], most),
    )


@njit(cache=True, inline="always")
def _pinball(levels, values, most, first, observed):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(first, levels.size):
        gap = observed - min(values[k], most)
        total += max(levels[k] * gap, (levels[k] - 1.0) * gap)
    return total / (levels.size - first)


@njit(cache=True)
def rank_correlation(pairs, begin, end):  # type: ignore[no-untyped-def]
    """Spearman's, of the two rows of pairs (2, N) from place `begin` to before `end`, ties at their mean rank; 0 where
    one is constant. O(N^2)."""
    ranks = np.empty((2, end - begin))
    for side in range(2):
        values = pairs[side, begin:end]
        for i in range(values.size):
            less, same = 0, 0
            for j in range(values.size):
                less += values[j] < values[i]
                same += values[j] == values[i]
            ranks[side, i] = less + (same + 1) / 2 - (values.size + 1) / 2
    product = first = second = 0.0
    for i in range(end - begin):
        product += ranks[0, i] * ranks[1, i]
        first += ranks[0, i] ** 2
        second += ranks[1, i] ** 2
    return product / np.sqrt(first * second) if first > 0 and second > 0 else 0.0

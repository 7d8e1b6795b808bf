"""Compiled arithmetic of `swarmx.trust`: two losses and, now and then, a rank correlation with every finished call."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def pinball(levels, values, first, observed):  # type: ignore[no-untyped-def]
    """Mean pinball loss of a grid's values (K,) over its levels from index `first` on."""
    total = 0.0
    for k in range(first, levels.size):
        gap = observed - values[k]
        total += max(levels[k] * gap, (levels[k] - 1.0) * gap)
    return total / (levels.size - first)


@njit(cache=True)
def rank_correlation(pairs):  # type: ignore[no-untyped-def]
    """Spearman's, of the two columns of (N, 2), ties at their mean rank; 0 where one is constant. O(N^2)."""
    count = pairs.shape[0]
    ranks = np.empty((count, 2))
    for i in range(count):
        for side in range(2):
            less, same = 0, 0
            for j in range(count):
                less += pairs[j, side] < pairs[i, side]
                same += pairs[j, side] == pairs[i, side]
            ranks[i, side] = less + (same + 1) / 2 - (count + 1) / 2
    product = first = second = 0.0
    for i in range(count):
        product += ranks[i, 0] * ranks[i, 1]
        first += ranks[i, 0] ** 2
        second += ranks[i, 1] ** 2
    return product / np.sqrt(first * second) if first > 0 and second > 0 else 0.0

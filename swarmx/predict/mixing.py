"""Two grids of the same calls mixed, each level by a weight of its own that is chosen by the loss out of fold; numpy.

One part may know the middle better and the other the tail. A level's weight is the least of a parabola through the
losses at `SHARES`, after the levels around it have been averaged in, so that few rows decide no level alone. Half of
the loss is taken of the logs and half of the values themselves, where long answers count for what they take: by logs
alone the output tokens of the shipped log lost 1 % of their median's pinball and its work to come 8 % at .99; by values
alone few long answers decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.calibrate import ordered
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
SHARES = np.linspace(0, 1, 6)  # tried weights of the first part
NEAR = 3.0  # standard deviation, in levels, of the window over neighbouring levels
_WEIGHTS = 1 / np.sqrt(LEVELS * (1 - LEVELS))  # rare errors of the tail count as much as those at the median


def level_losses(grids: Array, observed: Array) -> Array:
    """Pinball loss of each row and level, each over sqrt(level (1 - level)), (N, K) of (N, K) and (N,)."""
    gap = observed[:, None] - grids
    loss: Array = np.maximum(LEVELS * gap, (LEVELS - 1) * gap) * _WEIGHTS
    return loss


def mixed(one: Array, other: Array, shares: Array) -> Array:
    """Of log grids (N, K), each level of `one` with weight `shares` (K,), of `other` with the rest; not decreasing."""
    return ordered(other + shares * (one - other))


def best_shares(one: Array, other: Array, logs: Array, heed: Array | None = None) -> Array:
    """The weight of `one` at each level, (K,), that loses least.

    one, other : (N, K) log grids of rows that neither has seen; logs : (N,) observed; heed : (N,) weights of the rows
    """
    heed = np.ones(len(logs)) if heed is None else heed
    losses = np.zeros((2, len(SHARES), len(LEVELS)))
    most = float(logs.max()) + 1.0  # far beyond what was seen a value says nothing, and may be infinite
    values = np.expm1(logs)
    for s, share in enumerate(SHARES):
        grids = other + share * (one - other)
        losses[0, s] = heed @ level_losses(grids, logs)
        losses[1, s] = heed @ level_losses(np.expm1(np.clip(grids, 0.0, most)), values)
    curves = (losses / np.maximum(losses.mean(axis=1, keepdims=True), 1e-300)).sum(axis=0)  # (S, K)
    return _least(curves @ _window().T)


def _window() -> Array:
    """(K, K) weights of the levels around each; rows sum to 1."""
    place = np.arange(len(LEVELS))
    weights = np.exp(-0.5 * ((place[:, None] - place) / NEAR) ** 2)
    out: Array = weights / weights.sum(axis=1, keepdims=True)
    return out


def _least(curves: Array) -> Array:
    """Where the parabola through each column of (S, K) is least between 0 and 1; the best of `SHARES` without one."""
    square, line, _ = np.polyfit(SHARES, curves, 2)
    curved = square > 1e-12
    vertex = np.clip(-line / np.where(curved, 2 * square, 1.0), 0.0, 1.0)
    out: Array = np.where(curved, vertex, SHARES[curves.argmin(axis=0)])
    return out

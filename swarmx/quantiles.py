"""Distributions as quantile grids: a handful of levels, the value at each, and the algebra a scheduler needs.

Between levels the quantile function is linear; below the first level it is flat; above the last one it continues as an
exponential tail whose mean excess is `tail_excess`. All of it works on arrays of grids, (..., K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Denser above 0.9, where tails are decided. Every prediction, sketch and record of swarmx uses these levels.
LEVELS: Array = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995])
LEVELS.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class QuantileGrid:
    """Quantiles of one or many distributions.

    levels : (K,) strictly increasing in (0, 1); values : (..., K) finite and not decreasing along the last axis
    Raises ValueError when either promise is broken.
    """

    levels: Array
    values: Array

    def __post_init__(self) -> None:
        levels = np.asarray(self.levels, dtype=np.float64)
        values = np.asarray(self.values, dtype=np.float64)
        if levels.ndim != 1 or values.shape[-1:] != levels.shape:
            raise ValueError(f"values {values.shape} need one entry per level along the last axis, {levels.shape}")
        if levels is not LEVELS and not (levels[0] > 0 and levels[-1] < 1 and (levels[1:] > levels[:-1]).all()):
            raise ValueError(f"levels must increase strictly inside (0, 1), got {levels}")
        if not np.isfinite(values).all():
            raise ValueError("quantile values must be finite")
        if (values[..., 1:] < values[..., :-1]).any():
            raise ValueError("quantile values must not decrease with the level")
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "values", values)

    @classmethod
    def point(cls, value: ArrayLike) -> QuantileGrid:
        """The distribution(s) that are surely `value`, of any shape, on `LEVELS`."""
        value = np.asarray(value, dtype=np.float64)
        return cls(LEVELS, np.repeat(value[..., None], LEVELS.size, axis=-1))

    @classmethod
    def of_samples(cls, samples: ArrayLike, levels: Array = LEVELS) -> QuantileGrid:
        """Empirical quantiles of one sample (n,). Raises ValueError when it is empty or not finite."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.size == 0 or not np.all(np.isfinite(samples)):
            raise ValueError(f"quantiles need at least one sample, all finite; got {samples.size}")
        return cls(levels, np.quantile(samples, levels))

    def mean(self) -> Array:
        """Mean of each distribution, (...): linear between levels, exponential above the last."""
        return np.asarray(self.values @ mass(self.levels) + (1 - self.levels[-1]) * tail_excess(self))

    def sd(self) -> Array:
        """Standard deviation of each distribution, (...), from the same pieces as `mean`."""
        low, high = self.values[..., :-1], self.values[..., 1:]
        square = ((low * low + low * high + high * high) / 3) @ np.diff(self.levels)
        last, excess, top = self.values[..., -1], tail_excess(self), 1 - self.levels[-1]
        square = square + self.levels[0] * self.values[..., 0] ** 2
        square = square + top * (last**2 + 2 * last * excess + 2 * excess**2)
        variance: Array = np.maximum(square - self.mean() ** 2, 0.0)
        return np.sqrt(variance)

    def at(self, level: float) -> Array:
        """Value at one level in (0, 1), (...)."""
        if not 0 < level < 1:
            raise ValueError(f"a quantile level lies inside (0, 1), got {level}")
        if level > self.levels[-1]:
            return np.asarray(self.values[..., -1] + tail_excess(self) * np.log((1 - self.levels[-1]) / (1 - level)))
        k = int(np.searchsorted(self.levels, level))
        if k == 0:
            return np.asarray(self.values[..., 0])
        share = (level - self.levels[k - 1]) / (self.levels[k] - self.levels[k - 1])
        return np.asarray(self.values[..., k - 1] * (1 - share) + self.values[..., k] * share)

    def scaled(self, factor: ArrayLike) -> QuantileGrid:
        """Every distribution times a factor >= 0, broadcast over the leading axes."""
        return QuantileGrid(self.levels, self.values * np.asarray(factor, dtype=np.float64)[..., None])


def mass(levels: Array) -> Array:
    """Weight of each level's value in the mean, (K,): trapezoids between levels, all the rest on the two ends."""
    if levels is LEVELS:
        return _MASS
    return _mass(levels)


def _mass(levels: Array) -> Array:
    edges = np.concatenate(([0.0], (levels[:-1] + levels[1:]) / 2, [1.0]))
    return np.diff(edges)


_MASS = _mass(LEVELS)


def tail_excess(grid: QuantileGrid) -> Array:
    """Mean excess above the last level, (...): of the exponential through the last level and the one nearest 0.9."""
    if grid.levels.size < 2:
        return np.zeros(grid.values.shape[:-1])
    k = min(int(np.searchsorted(grid.levels, 0.9)), grid.levels.size - 2)
    run = np.log((1 - grid.levels[k]) / (1 - grid.levels[-1]))
    return np.asarray((grid.values[..., -1] - grid.values[..., k]) / run)


def compose(
    a: QuantileGrid, b: QuantileGrid, how: Literal["comonotone", "independent"] | float = "independent"
) -> QuantileGrid:
    """Distribution of the sum, on the levels of `a`; leading axes broadcast.

    how : "comonotone" adds the quantiles (an upper bound on the tail); "independent" convolves the two grids;
        a number rho in [0, 1] mixes the two quantile functions, rho = 1 being comonotone
    Raises ValueError when the levels differ or `how` is unknown.
    """
    if a.levels.shape != b.levels.shape or not np.array_equal(a.levels, b.levels):
        raise ValueError("compose needs two grids on the same levels")
    together = a.values + b.values
    if how == "comonotone" or how == 1:
        return QuantileGrid(a.levels, together)
    rho: object = 0.0 if how == "independent" else how
    if not isinstance(rho, int | float) or not 0 <= rho <= 1:
        raise ValueError(f"unknown composition {how!r}; choose comonotone, independent or a correlation in [0, 1]")
    apart = _convolve(a, b)
    return QuantileGrid(a.levels, rho * together + (1 - rho) * apart)


def _convolve(a: QuantileGrid, b: QuantileGrid) -> Array:
    """Quantiles of the sum of two independent grids: all K x K sums, sorted, read off at the levels."""
    w = mass(a.levels)
    # the last atom stands for everything above the last level: place it at its mean
    va, vb = _atoms(a), _atoms(b)
    sums = (va[..., :, None] + vb[..., None, :]).reshape(*np.broadcast_shapes(va.shape[:-1], vb.shape[:-1]), -1)
    weights = np.broadcast_to((w[:, None] * w[None, :]).ravel(), sums.shape)
    order = np.lexsort((weights, sums), axis=-1)  # ties by weight, so that the sum commutes
    ordered = np.take_along_axis(sums, order, axis=-1)
    weight = np.take_along_axis(weights, order, axis=-1)
    middle = np.cumsum(weight, axis=-1) - weight / 2
    flat_m, flat_s = middle.reshape(-1, middle.shape[-1]), ordered.reshape(-1, ordered.shape[-1])
    out = np.stack([np.interp(a.levels, m, s) for m, s in zip(flat_m, flat_s, strict=True)])
    return np.maximum.accumulate(out.reshape(*sums.shape[:-1], a.levels.size), axis=-1)


def _atoms(grid: QuantileGrid) -> Array:
    """Values with the last one moved up so that the atoms have the grid's mean."""
    values = grid.values.copy()
    values[..., -1] += (1 - grid.levels[-1]) * tail_excess(grid) / mass(grid.levels)[-1]
    return values


def condition_on_age(grid: QuantileGrid, age: ArrayLike) -> QuantileGrid:
    """Distribution of what is left, X - age given X > age, on the same levels; ages (...) broadcast.

    Where the age lies beyond the last level, the rest is the exponential tail of the grid (a point at zero if that has
    no width).
    """
    age = np.broadcast_to(np.asarray(age, dtype=np.float64), grid.values.shape[:-1])
    out = np.empty(grid.values.shape)
    excess = np.broadcast_to(tail_excess(grid), age.shape)
    top = 1 - grid.levels[-1]
    for index in np.ndindex(age.shape):
        values, a, e = grid.values[index], float(age[index]), float(excess[index])
        below = (
            level_of(grid.levels, values, a) if a < values[-1] else 1 - top * np.exp(-(a - values[-1]) / max(e, 1e-12))
        )
        survive = max(1 - below, 1e-300)
        wanted = 1 - survive * (1 - grid.levels)
        inside = np.interp(wanted, grid.levels, values)
        beyond = values[-1] + e * np.log(np.maximum(top / np.maximum(1 - wanted, 1e-300), 1.0))
        out[index] = np.where(wanted > grid.levels[-1], beyond, inside) - a
    return QuantileGrid(grid.levels, np.maximum.accumulate(np.maximum(out, 0.0), axis=-1))


def level_of(levels: Array, values: Array, x: float) -> float:
    """P(X <= x) under one grid, 0 at or below the first value when that is where the mass starts."""
    if x < values[0]:
        return 0.0
    return float(np.interp(x, values, levels))


def tail_cost(
    grid: QuantileGrid,
    kind: str = "cvar",
    level: float = 0.95,
    slo: float | None = None,
    sd_weight: float = 1.0,
) -> Array:
    """One number per distribution, in the grid's unit, (...).

    kind : "mean", "quantile" (at `level`), "cvar" (mean above `level`), "overshoot" (mean excess over `slo`),
        "mean_sd" (mean + sd_weight standard deviations)
    Raises ValueError when the kind is unknown, the level is outside (0, 1), or an overshoot has no slo.
    Rockafellar and Uryasev (2000), Optimization of Conditional Value-at-Risk.
    """
    if kind == "mean":
        return grid.mean()
    if kind == "quantile":
        return grid.at(level)
    if kind == "mean_sd":
        return grid.mean() + sd_weight * grid.sd()
    if kind == "cvar":
        cut = grid.at(level)
        return cut + overshoot(grid, cut) / (1 - level)
    if kind == "overshoot":
        if slo is None:
            raise ValueError("tail cost 'overshoot' needs an slo in the grid's unit")
        return overshoot(grid, np.full(grid.values.shape[:-1], float(slo)))
    raise ValueError(f"unknown tail cost {kind!r}; choose mean, quantile, cvar, overshoot, mean_sd")


def overshoot(grid: QuantileGrid, cut: Array) -> Array:
    """E[max(X - cut, 0)] of each distribution, (...)."""
    cut = np.asarray(cut, dtype=np.float64)[..., None]
    low, high = grid.values[..., :-1] - cut, grid.values[..., 1:] - cut
    width = high - low
    # mean of max(y, 0) for y uniform on [low, high]
    part = np.where(low >= 0, (low + high) / 2, np.where(high <= 0, 0.0, high**2 / (2 * np.maximum(width, 1e-300))))
    inside = part @ np.diff(grid.levels) + grid.levels[0] * np.maximum(grid.values[..., 0] - cut[..., 0], 0.0)
    last, excess = grid.values[..., -1] - cut[..., 0], tail_excess(grid)
    top = 1 - grid.levels[-1]
    safe = np.maximum(excess, 1e-300)
    beyond = np.where(last >= 0, last + excess, excess * np.exp(np.maximum(last, -700 * safe) / safe))
    return np.asarray(inside + top * beyond)


def pinball_loss(grid: QuantileGrid, observed: ArrayLike) -> Array:
    """Loss of each level against what was observed (...), shape (..., K), in the grid's unit.

    Koenker and Bassett (1978), Regression Quantiles.
    """
    gap = np.asarray(observed, dtype=np.float64)[..., None] - grid.values
    return np.maximum(grid.levels * gap, (grid.levels - 1) * gap)

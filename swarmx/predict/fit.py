"""Fitting the head on a log's features: two ridges, the start, then small networks that each leave other folds out.

With eight folds, member m leaves out folds m, m + 1 and m + 2, which it calibrates, and stops early on half of fold
m + 3, which it does not train on either. A row is calibrated by the mean of the members that have not seen it, as the
shipped head is a mean: a single member's errors are larger than those of the mean, and calibrating on them makes every
interval too wide (measured: 0.968 covered at 0.95). Kim, Xu and Barber (2020), Predictive Inference Is Free with the
Jackknife+-after-Bootstrap. Needs torch and scipy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from swarmx.predict.checkpoint import Checkpoint
from swarmx.predict.features import BUCKETS, Features
from swarmx.predict.fit_networks import CHUNK, Rows, Schedule, train_networks
from swarmx.predict.fit_networks import Progress as Progress
from swarmx.predict.network import HeadConfig, Heads, Start, level_weights
from swarmx.predict.ridge import STRENGTHS, Design, fit_ridge
from swarmx.predict.split import share
from swarmx.predict.start import fit_start
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
TYPE_ROWS = 10  # rows before a call type becomes a feature


@dataclass(frozen=True, slots=True)
class FitConfig:
    seed: int = 0
    epochs: int = 60
    patience: int = 8  # epochs without a better early-stopping loss before the rest are skipped
    batch: int = 160  # rows of each member
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    hidden: int = 64
    members: int = 8  # and as many folds
    left_out: int = 3  # folds that a member leaves out
    dropout: float = 0.1
    landmarks: int = 256
    count_landmarks: int = 192
    bins: int = 8
    level_weights: tuple[float, ...] = tuple(level_weights())
    strengths: tuple[float, ...] = STRENGTHS  # of the ridges, strong to weak; the best is taken

    @property
    def schedule(self) -> Schedule:
        return Schedule(
            self.epochs, self.patience, self.batch, self.learning_rate, self.weight_decay, self.seed, self.level_weights
        )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Known labels; the id of a label is its place + 1, 0 for none or unknown."""

    types: tuple[str, ...]
    models: tuple[str, ...]

    def ids(self, labels: Sequence[tuple[str, str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        types = {name: i + 1 for i, name in enumerate(self.types)}
        models = {name: i + 1 for i, name in enumerate(self.models)}
        return (
            np.array([types.get(kind, 0) for kind, _ in labels], np.int64).reshape(-1),
            np.array([models.get(model, 0) for _, model in labels], np.int64).reshape(-1),
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """heads : the trained module; out_of_fold : (2, N, T, K) log quantiles by members that had not seen the row, first
    with its type, then without; ridge_r2 : (2, T) of the two ridges, out of fold; epochs : trained"""

    heads: Heads
    vocabulary: Vocabulary
    out_of_fold: Array
    ridge_r2: Array
    epochs: int


def distinct(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each different text stands first, (U,), and how often each row's text occurs, (N,).

    Not numpy's `unique`: an array of texts takes four bytes for every character of the longest one in every row.
    """
    times = Counter(texts)
    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(text, i)
    return np.array(sorted(first.values()), np.int64), np.array([times[text] for text in texts], np.int64)


def vocabulary_of(labels: Sequence[tuple[str, str]]) -> Vocabulary:
    kinds = Counter(kind for kind, _ in labels if kind)
    types = tuple(sorted(kind for kind, n in kinds.items() if n >= TYPE_ROWS))
    return Vocabulary(types, tuple(sorted({model for _, model in labels})))


def fit_heads(
    features: Features,
    embedding: NDArray[np.float32],
    values: Array,
    groups: NDArray[np.str_],
    fold: NDArray[np.int64],
    config: FitConfig,
    progress: Progress = lambda what, done: None,
    weights: Array | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Train on every row given.

    embedding : (N, E) of each row's text, E = 0 without text; values : (N, T) natural units; fold : (N,) 0..members-1
    weights : (N,) mean 1, how much the networks heed each row; ridges and start take all rows alike
    checkpoint : where finished steps are kept, and taken from when an earlier run of the same rows was killed
    """
    torch.manual_seed(config.seed)
    logs = np.log1p(values)
    vocabulary = vocabulary_of(features.labels)
    heads = Heads(
        HeadConfig(
            targets=values.shape[1],
            types=len(vocabulary.types),
            models=len(vocabulary.models),
            embedding=embedding.shape[1],
            landmarks=config.landmarks,
            count_landmarks=config.count_landmarks,
            bins=config.bins,
            members=config.members,
            hidden=config.hidden,
            dropout=config.dropout,
        )
    )
    earlier = checkpoint.load("ridge") if checkpoint else None
    if earlier is None:
        rows, r2 = _fit_linear(
            heads, tensors_of(features, embedding, vocabulary), features, logs, fold, config, progress
        )
        if checkpoint:
            checkpoint.store("ridge", _linear_arrays(heads, rows, r2))
    else:
        rows, r2 = _linear_of(heads, earlier)
    progress("ridge", 1.0)
    left_out, trains, stops = _masks(groups, fold, config)
    heed = torch.ones(1) if weights is None else torch.from_numpy(np.tile(weights, 2)).float()
    epochs = train_networks(heads, rows, trains * heed, stops * heed, config.schedule, progress, checkpoint)
    own = _out_of_fold(heads, rows, left_out / left_out.sum(axis=0)).reshape(2, *values.shape, len(LEVELS))
    return Fitted(heads, vocabulary, own, r2, epochs)


@torch.no_grad()
def _out_of_fold(heads: Heads, rows: Rows, unseen: Array) -> Array:
    """Log quantiles (2 N, T, K), the mean over the members of weight unseen (M, 2 N)."""
    parts = []
    for at in _parts(len(rows.ridge)):
        grids = heads.grids(rows.start[at], rows.ridge[at], rows.seen[at], rows.types[at]).double().numpy()
        parts.append((grids * unseen[:, at, None, None]).sum(axis=0))  # (rows, T, K)
    return np.concatenate(parts)


def _parts(rows: int) -> list[slice]:
    """Stretches of rows whose grids of all members fit into memory at once."""
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]


def _fit_linear(
    heads: Heads, inputs: tuple[Tensor, ...], features: Features, logs: Array, fold: NDArray[np.int64],
    config: FitConfig, progress: Progress,
) -> tuple[Rows, Array]:  # fmt: skip
    """Ridges and start into `heads`; what the networks learn from, and the ridges' R2 (2, T)."""
    progress("ridge", 0.0)
    ridge, seen, r2 = _fit_ridges(heads, inputs, features, logs, fold, config)
    heads.scale.copy_(torch.from_numpy(np.maximum(logs.std(axis=0), 0.05)))
    start = _fit_start(heads.start, ridge, logs, inputs[2].numpy(), fold, config.bins)
    types = torch.cat((inputs[2], torch.zeros_like(inputs[2])))
    return Rows(start, ridge, seen, types, torch.from_numpy(np.tile(logs, (2, 1))).float()), r2


def _linear_arrays(heads: Heads, rows: Rows, r2: Array) -> dict[str, NDArray[Any]]:
    out = {f"heads {name}": value.numpy() for name, value in heads.state_dict().items()}
    out |= {f"rows {item.name}": getattr(rows, item.name).numpy() for item in dataclass_fields(Rows)}
    return out | {"r2": r2, "noise": torch.get_rng_state().numpy()}


def _linear_of(heads: Heads, stored: dict[str, NDArray[Any]]) -> tuple[Rows, Array]:
    """The same again, and the random state as it was then."""
    tensors = {name: torch.from_numpy(value) for name, value in stored.items()}
    heads.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("heads ")})
    torch.set_rng_state(tensors["noise"])
    return Rows(**{item.name: tensors[f"rows {item.name}"] for item in dataclass_fields(Rows)}), stored["r2"]


def tensors_of(features: Features, embedding: NDArray[np.float32], vocabulary: Vocabulary) -> tuple[Tensor, ...]:
    """What `Heads.forward` takes, in its order."""
    types, models = vocabulary.ids(features.labels)
    arrays = (embedding, features.counts, types, models, features.gram_ids, features.gram_weights)
    return tuple(torch.from_numpy(array) for array in arrays)


@torch.no_grad()
def _fit_ridges(
    heads: Heads,
    inputs: tuple[Tensor, ...],
    features: Features,
    logs: Array,
    fold: NDArray[np.int64],
    config: FitConfig,
) -> tuple[Tensor, Tensor, Array]:
    """Fit basis and ridges into `heads`; out-of-fold ridge (2 N, T), what the MLP sees (2 N, M), R2 (2, T)."""
    embedding, counts, types, models, ids, weights = inputs
    first = distinct(features.texts)[0]
    heads.basis.fit(embedding[first], counts[first], config.seed)
    heads.idf.copy_(idf_of(features, first))
    grams = hashed(ids.numpy(), (weights * heads.idf[ids]).numpy())
    wide, sight, blind = seen_of(heads, embedding, counts, types, models)
    # both ridges at once: the second half of the columns may not use the types, the first ones of the features
    targets = logs.shape[1]
    used = np.ones((wide.shape[1] + BUCKETS, 2 * targets), dtype=bool)
    used[: heads.config.types, targets:] = False
    found = fit_ridge(Design(wide, grams), np.tile(logs, (1, 2)), fold, used, config.strengths)
    cut = wide.shape[1]
    heads.dense.copy_(torch.from_numpy(found.weights[:cut]))
    heads.theta.copy_(torch.from_numpy(found.weights[cut:]))
    heads.intercept.copy_(torch.from_numpy(found.intercept))
    typed, untyped = np.split(found.out_of_fold, 2, axis=1)
    typed = np.where((types > 0).numpy()[:, None], typed, untyped)  # the second ridge answers for calls without type
    ridge = torch.from_numpy(np.concatenate((typed, untyped))).float()
    return ridge, torch.cat((sight, blind)), found.r2.reshape(2, targets)


def seen_of(
    heads: Heads, embedding: Tensor, counts: Tensor, types: Tensor, models: Tensor
) -> tuple[Any, Tensor, Tensor]:
    """Ridge features (N, D) as an array, and what the MLP sees (N, M), with types and without."""
    wide, sight, blind = np.empty((len(types), heads.basis.size), np.float32), [], []
    for at in _parts(len(types)):
        part, seen = heads.basis(embedding[at], counts[at], types[at], models[at])
        wide[at] = part.numpy()
        sight.append(seen)
        blind.append(heads.basis(embedding[at], counts[at], torch.zeros_like(types[at]), models[at])[1])
    return wide, torch.cat(sight), torch.cat(blind)


def hashed(ids: NDArray[np.integer[Any]], weights: NDArray[np.float32]) -> csr_array:
    """Rows of length one, (N, BUCKETS), from buckets and weights (N, G)."""
    weights = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-6)
    n, width = weights.shape
    grams = csr_array(
        (weights.ravel(), ids.ravel(), np.arange(0, n * width + 1, width)), shape=(n, BUCKETS), dtype=np.float32
    )
    grams.sum_duplicates()
    grams.eliminate_zeros()
    return grams


@torch.no_grad()
def _fit_start(
    start: Start, ridge: Tensor, logs: Array, types: NDArray[np.int64], fold: NDArray[np.int64], bins: int
) -> Tensor:
    """Fit every target's start into the module; the training rows' cross-fitted start, (2 N, T, K)."""
    by_mode = ridge.double().numpy().reshape(2, *logs.shape)
    rows = []
    for t in range(logs.shape[1]):
        fitted = fit_start(by_mode[:, :, t], logs[:, t], types, len(start.by_type) - 1, fold, bins)
        for mode in (0, 1):
            start.centre[mode, t] = torch.from_numpy(fitted.bins[mode].centre)
            start.table[mode, t] = torch.from_numpy(fitted.bins[mode].table)
        start.by_type[:, t] = torch.from_numpy(fitted.by_type)
        start.trust[t] = fitted.trust
        rows.append(fitted.rows.reshape(-1, len(LEVELS)))
    return torch.from_numpy(np.stack(rows, axis=1)).float()


def idf_of(features: Features, first: NDArray[np.int64]) -> Tensor:
    """log((1 + texts) / (1 + texts with the bucket)) + 1, (BUCKETS,)."""
    ids, weights = features.gram_ids[first], features.gram_weights[first]
    frequency = np.bincount(ids[weights > 0], minlength=BUCKETS)
    return torch.from_numpy(np.log((1 + len(first)) / (1 + frequency)) + 1).float()


def _masks(groups: NDArray[np.str_], fold: NDArray[np.int64], config: FitConfig) -> tuple[Array, Tensor, Tensor]:
    """Rows that each member leaves out, trains on and stops on: three (members, 2 N) masks of 0 and 1."""
    coin = np.array([share(str(group), f"stop {config.seed}") < 0.5 for group in groups])
    distance = (fold[None] - np.arange(config.members)[:, None]) % config.members
    left_out = distance < config.left_out
    stops = (distance == config.left_out) & coin
    masks = [np.tile(mask.astype(np.float64), (1, 2)) for mask in (left_out, ~left_out & ~stops, stops)]
    return masks[0], torch.from_numpy(masks[1]).float(), torch.from_numpy(masks[2]).float()

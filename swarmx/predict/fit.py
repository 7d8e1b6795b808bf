"""Fitting the head on a log's features: two ridges, then a few small networks that each leave another fold out.

Member m never sees fold m, whose rows it calibrates, and stops early on half of the next fold, which it does not train
on either. The shipped head is the mean of the members, so that every row has taught some of it. Needs torch and scipy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from swarmx.predict.features import BUCKETS, Features
from swarmx.predict.network import HeadConfig, Heads, level_weights, pinball
from swarmx.predict.ridge import Design, fit_ridge
from swarmx.predict.split import share
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]  # what is done, share of it in [0, 1]
TYPE_ROWS = 10  # rows before a call type becomes a feature


@dataclass(frozen=True, slots=True)
class FitConfig:
    seed: int = 0
    epochs: int = 60
    patience: int = 8  # epochs without a better early-stopping loss before the rest are skipped
    batch: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    hidden: int = 64
    members: int = 5
    dropout: float = 0.1
    landmarks: int = 256
    level_weights: tuple[float, ...] = tuple(level_weights())


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


def vocabulary_of(labels: Sequence[tuple[str, str]]) -> Vocabulary:
    kinds = Counter(kind for kind, _ in labels if kind)
    types = tuple(sorted(kind for kind, n in kinds.items() if n >= TYPE_ROWS))
    return Vocabulary(types, tuple(sorted({model for _, model in labels})))


def fit_heads(
    features: Features, embedding: NDArray[np.float32], values: Array, groups: NDArray[np.str_],
    fold: NDArray[np.int64], config: FitConfig, progress: Progress = lambda what, done: None,
) -> Fitted:  # fmt: skip
    """Train on every row given.

    embedding : (N, E) of each row's text, E = 0 without text; values : (N, T) natural units; fold : (N,) 0..members-1
    """
    torch.manual_seed(config.seed)
    logs = np.log1p(values)
    vocabulary = vocabulary_of(features.labels)
    heads = Heads(
        HeadConfig(
            targets=values.shape[1], types=len(vocabulary.types), models=len(vocabulary.models),
            embedding=embedding.shape[1], landmarks=config.landmarks, members=config.members,
            hidden=config.hidden, dropout=config.dropout,
        )
    )  # fmt: skip
    inputs = _tensors(features, embedding, vocabulary)
    progress("ridge", 0.0)
    ridge, seen, typed, r2 = _fit_ridges(heads, inputs, features, logs, fold, config.seed)
    progress("ridge", 1.0)
    spread = np.maximum(logs.std(axis=0), 0.05)
    heads.scale.copy_(torch.from_numpy(spread))
    residual = (logs[None] - ridge.double().numpy().reshape(2, *logs.shape)).reshape(-1, logs.shape[1]) / spread
    heads.start_at(np.quantile(residual, LEVELS, axis=0).T)
    masks = _masks(groups, fold, config)
    epochs = _train(heads, ridge, seen, typed, torch.from_numpy(np.tile(logs, (2, 1))).float(), masks, config, progress)
    heads.eval()
    with torch.no_grad():
        grids = heads.grids(ridge, seen, typed).double().numpy()  # (M, 2 N, T, K)
    rows = np.arange(len(logs))
    own = grids.reshape(config.members, 2, len(logs), *grids.shape[2:])[fold % config.members, :, rows]
    return Fitted(heads, vocabulary, own.swapaxes(0, 1), r2, epochs)


def _tensors(features: Features, embedding: NDArray[np.float32], vocabulary: Vocabulary) -> tuple[Tensor, ...]:
    """What `Heads.forward` takes, in its order."""
    types, models = vocabulary.ids(features.labels)
    arrays = (embedding, features.counts, types, models, features.gram_ids, features.gram_weights)
    return tuple(torch.from_numpy(array) for array in arrays)


@torch.no_grad()
def _fit_ridges(
    heads: Heads, inputs: tuple[Tensor, ...], features: Features, logs: Array, fold: NDArray[np.int64], seed: int
) -> tuple[Tensor, Tensor, Tensor, Array]:
    """Fit basis and ridges into `heads`; out-of-fold ridge (2 N, T), what the MLP sees (2 N, M), typed (2 N, 1), R2."""
    embedding, counts, types, models, ids, weights = inputs
    _, first = np.unique(np.array(features.texts), return_index=True)
    heads.basis.fit(embedding[first], counts[first], seed)
    heads.idf.copy_(_idf(features, first))
    hashed = (weights * heads.idf[ids]).numpy()
    hashed = hashed / np.maximum(np.linalg.norm(hashed, axis=1, keepdims=True), 1e-6)
    n, width = hashed.shape
    grams = csr_array((hashed.ravel(), ids.numpy().ravel(), np.arange(0, n * width + 1, width)), shape=(n, BUCKETS))
    grams.sum_duplicates()
    grams.eliminate_zeros()
    found, seen, dense, theta, intercept = [], [], [], [], []
    for known in (types, torch.zeros_like(types)):
        wide, sight = heads.basis(embedding, counts, known, models)
        fitted = fit_ridge(Design(wide.double().numpy(), grams), logs, fold)
        found.append(fitted)
        seen.append(sight)
        dense.append(fitted.weights[: wide.shape[1]])
        theta.append(fitted.weights[wide.shape[1] :])
        intercept.append(fitted.intercept)
    heads.dense.copy_(torch.from_numpy(np.concatenate(dense, axis=1)))
    heads.theta.copy_(torch.from_numpy(np.concatenate(theta, axis=1)))
    heads.intercept.copy_(torch.from_numpy(np.concatenate(intercept)))
    ridge = torch.from_numpy(np.concatenate([f.out_of_fold for f in found])).float()
    typed = torch.cat((types > 0, torch.zeros_like(types, dtype=torch.bool)))[:, None]
    return ridge, torch.cat(seen), typed, np.array([f.r2 for f in found])


def _idf(features: Features, first: NDArray[np.int64]) -> Tensor:
    """log((1 + texts) / (1 + texts with the bucket)) + 1, (BUCKETS,)."""
    ids, weights = features.gram_ids[first], features.gram_weights[first]
    frequency = np.bincount(ids[weights > 0], minlength=BUCKETS)
    return torch.from_numpy(np.log((1 + len(first)) / (1 + frequency)) + 1).float()


def _masks(groups: NDArray[np.str_], fold: NDArray[np.int64], config: FitConfig) -> tuple[Tensor, Tensor]:
    """Rows that each member trains on and stops on, two (members, 2 N) masks of 0 and 1."""
    coin = np.array([share(str(group), f"stop {config.seed}") < 0.5 for group in groups])
    member = np.arange(config.members)[:, None]
    stops = (fold[None] == (member + 1) % config.members) & coin
    trains = (fold[None] != member) & ~stops
    return tuple(torch.from_numpy(np.tile(mask, (1, 2))).float() for mask in (trains, stops))  # type: ignore[return-value]


def _train(
    heads: Heads, ridge: Tensor, seen: Tensor, typed: Tensor, logs: Tensor, masks: tuple[Tensor, Tensor],
    config: FitConfig, progress: Progress,
) -> int:  # fmt: skip
    """Train the members side by side; each keeps the weights of its own best epoch. Returns the epochs run."""
    levels, weights = torch.tensor(LEVELS, dtype=torch.float32), torch.tensor(config.level_weights)
    trains, stops = masks
    draw = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.AdamW(heads.members.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(config.epochs, 1))

    def losses(rows: Tensor | slice, mask: Tensor) -> Tensor:
        grids = heads.grids(ridge[rows], seen[rows], typed[rows])
        loss = (pinball(grids, logs[rows], levels, weights) / heads.scale).mean(-1)  # (M, rows)
        return (loss * mask[:, rows]).sum(1) / mask[:, rows].sum(1).clamp_min(1)

    best = torch.full((config.members,), torch.inf)
    kept, since, epoch = deepcopy(heads.members.state_dict()), 0, 0
    for epoch in range(1, config.epochs + 1):
        heads.train()
        for rows in torch.randperm(len(ridge), generator=draw).split(config.batch):  # type: ignore[no-untyped-call]
            optimiser.zero_grad(set_to_none=True)
            losses(rows, trains).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        schedule.step()
        heads.eval()
        with torch.no_grad():
            now = losses(slice(None), stops)
        better = now < best - 1e-5
        for name, value in heads.members.state_dict().items():
            kept[name][better] = value[better]
        best = torch.where(better, now, best)
        since = 0 if bool(better.any()) else since + 1
        progress("network", epoch / config.epochs)
        if since >= config.patience:
            break
    heads.members.load_state_dict(kept)
    return epoch

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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swarmx.predict.checkpoint import Checkpoint
from swarmx.predict.features import Features
from swarmx.predict.fit_linear import distinct as distinct
from swarmx.predict.fit_linear import fit_linear, linear_arrays, linear_of, parts, tensors_of
from swarmx.predict.fit_networks import Progress as Progress
from swarmx.predict.fit_networks import Rows, Schedule, train_networks
from swarmx.predict.mixing import best_shares, level_losses, mixed
from swarmx.predict.network import HeadConfig, Heads, level_weights
from swarmx.predict.ridge import STRENGTHS
from swarmx.predict.split import share
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
    most_landmarks: int = 1024  # where tools are compared with texts, as many as there are texts up to this
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
    with its type, then without; ridge_r2 : (2, T) of the two ridges, out of fold; epochs : trained
    gain : (T,) out-of-fold loss over that of the ridge with residual bins alone, 1 where that answers alone"""

    heads: Heads
    vocabulary: Vocabulary
    out_of_fold: Array
    ridge_r2: Array
    epochs: int
    gain: Array


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
    near: int = 0,
) -> Fitted:
    """Train on every row given.

    embedding : (N, E) of each row's call, E = 0 without text; values : (N, T) natural units; fold : (N,) 0..members-1
    weights : (N,) mean 1, how much the networks heed each row; ridges and start take all rows alike
    checkpoint : where finished steps are kept, and taken from when an earlier run of the same rows was killed
    near : how many of the embedding's last columns say how near the call's tools are; left out where they never vary
    """
    torch.manual_seed(config.seed)
    logs = np.log1p(values)
    vocabulary = vocabulary_of(features.labels)
    heads, embedding = heads_for(features, embedding, near, vocabulary, config, values.shape[1])
    earlier = checkpoint.load("ridge") if checkpoint else None
    if earlier is None:
        rows, r2 = fit_linear(
            heads, tensors_of(features, embedding, vocabulary), features, logs, fold, config, progress
        )
        if checkpoint:
            checkpoint.store("ridge", linear_arrays(heads, rows, r2))
    else:
        rows, r2 = linear_of(heads, earlier)
    progress("ridge", 1.0)
    left_out, trains, stops = _masks(groups, fold, config)
    heed = torch.ones(1) if weights is None else torch.from_numpy(np.tile(weights, 2)).float()
    epochs = train_networks(heads, rows, trains * heed, stops * heed, config.schedule, progress, checkpoint)
    own = _out_of_fold(heads, rows, left_out / left_out.sum(axis=0))
    own, gain = weigh(heads, rows, own, np.ones(1) if weights is None else np.tile(weights, 2))
    return Fitted(heads, vocabulary, own.reshape(2, *values.shape, len(LEVELS)), r2, epochs, gain)


def heads_for(
    features: Features, embedding: NDArray[np.float32], near: int, vocabulary: Vocabulary, config: FitConfig,
    targets: int = 1,
) -> tuple[Heads, NDArray[np.float32]]:  # fmt: skip
    """Heads of the size that a log needs, not fitted yet, and the columns of its embedding that they read."""
    width = embedding.shape[1] - near
    if not embedding[:, width:].any():
        near = 0
    marks = min(config.most_landmarks, len(distinct(features.texts)[0])) if near else config.landmarks
    size = HeadConfig(
        targets, len(vocabulary.types), len(vocabulary.models), width, near, landmarks=marks,
        count_landmarks=config.count_landmarks, bins=config.bins, members=config.members, hidden=config.hidden,
        dropout=config.dropout,
    )  # fmt: skip
    return Heads(size), embedding[:, : width + near]


@torch.no_grad()
def _out_of_fold(heads: Heads, rows: Rows, unseen: Array) -> Array:
    """Log quantiles (2 N, T, K), the mean over the members of weight unseen (M, 2 N)."""
    found = []
    for at in parts(len(rows.ridge)):
        grids = heads.grids(rows.start[at], rows.ridge[at], rows.seen[at], rows.types[at]).double().numpy()
        found.append((grids * unseen[:, at, None, None]).sum(axis=0))  # (rows, T, K)
    return np.concatenate(found)


@torch.no_grad()
def weigh(heads: Heads, rows: Rows, own: Array, heed: Array) -> tuple[Array, Array]:
    """Set what the networks count against their start at each level of each target, by the loss out of fold; the grids
    (2 N, T, K) mixed so, and their loss over that of the start (T,).

    own : (2 N, T, K) of the networks, out of fold; heed : (2 N,) weights of the rows
    """
    logs, gain = rows.logs.double().numpy(), np.ones(own.shape[1])
    heed = np.broadcast_to(heed, len(logs))
    for t in range(own.shape[1]):
        start = rows.start[:, t].double().numpy()
        shares = best_shares(own[:, t], start, logs[:, t], heed)
        own[:, t] = mixed(own[:, t], start, shares)
        heads.trust[t] = torch.from_numpy(shares)
        before, after = (float((heed @ level_losses(grids, logs[:, t])).sum()) for grids in (start, own[:, t]))
        gain[t] = after / max(before, 1e-12)
    return own, gain


def _masks(groups: NDArray[np.str_], fold: NDArray[np.int64], config: FitConfig) -> tuple[Array, Tensor, Tensor]:
    """Rows that each member leaves out, trains on and stops on: three (members, 2 N) masks of 0 and 1."""
    coin = np.array([share(str(group), f"stop {config.seed}") < 0.5 for group in groups])
    distance = (fold[None] - np.arange(config.members)[:, None]) % config.members
    left_out = distance < config.left_out
    stops = (distance == config.left_out) & coin
    masks = [np.tile(mask.astype(np.float64), (1, 2)) for mask in (left_out, ~left_out & ~stops, stops)]
    return masks[0], torch.from_numpy(masks[1]).float(), torch.from_numpy(masks[2]).float()

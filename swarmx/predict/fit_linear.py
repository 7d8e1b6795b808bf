"""The linear part of a head: basis, ridges and start, fitted into the module, and what the networks learn from.

Needs torch and scipy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from swarmx.predict.features import BUCKETS, Features
from swarmx.predict.fit_networks import CHUNK, Progress, Rows
from swarmx.predict.network import Heads, Start
from swarmx.predict.ridge import Design, fit_ridge
from swarmx.predict.start import fit_start
from swarmx.quantiles import LEVELS

if TYPE_CHECKING:
    from swarmx.predict.fit import FitConfig, Vocabulary

Array = NDArray[np.float64]
EMBEDDING_SCALE = 4.0


def distinct(texts: Sequence[Hashable]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each different text stands first, (U,), and how often each row's text occurs, (N,).

    Not numpy's `unique`: an array of texts takes four bytes for every character of the longest one in every row.
    """
    times = Counter(texts)
    first: dict[Hashable, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(text, i)
    return np.array(sorted(first.values()), np.int64), np.array([times[text] for text in texts], np.int64)


def fit_linear(
    heads: Heads, inputs: tuple[Tensor, ...], features: Features, logs: Array, fold: NDArray[np.int64],
    config: FitConfig, progress: Progress,
) -> tuple[Rows, Array]:  # fmt: skip
    """Ridges and start into `heads`; what the networks learn from, and the ridges' R2 (2, T)."""
    progress("ridge", 0.0)
    ridge, seen, r2 = _fit_ridges(heads, inputs, features, logs, fold, config)
    heads.scale.copy_(torch.from_numpy(np.maximum(logs.std(axis=0), 0.05)))
    novelty = len(distinct(features.texts)[0]) / len(logs)
    start = _fit_start(heads.start, ridge, logs, inputs[2].numpy(), fold, config.bins, novelty)
    types = torch.cat((inputs[2], torch.zeros_like(inputs[2])))
    return Rows(start, ridge, seen, types, torch.from_numpy(np.tile(logs, (2, 1))).float()), r2


def linear_arrays(heads: Heads, rows: Rows, r2: Array) -> dict[str, NDArray[Any]]:
    out = {f"heads {name}": value.numpy() for name, value in heads.state_dict().items()}
    out |= {f"rows {item.name}": getattr(rows, item.name).numpy() for item in dataclass_fields(Rows)}
    return out | {"r2": r2, "noise": torch.get_rng_state().numpy()}


def linear_of(heads: Heads, stored: dict[str, NDArray[Any]]) -> tuple[Rows, Array]:
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
    heads.basis.usual.copy_(_shares(models, len(heads.basis.usual)))
    heads.idf.copy_(idf_of(features, first))
    grams = hashed(ids.numpy(), (weights * heads.idf[ids]).numpy())
    wide, sight, blind = seen_of(heads, embedding, counts, types, models)
    targets, cut = logs.shape[1], wide.shape[1]
    scales = scales_of(heads.basis.columns, targets)
    found = fit_ridge(Design(wide, grams), np.tile(logs, (1, 2)), fold, scales, config.strengths)
    heads.dense.copy_(torch.from_numpy(found.weights[:cut]))
    heads.theta.copy_(torch.from_numpy(found.weights[cut:]))
    heads.intercept.copy_(torch.from_numpy(found.intercept))
    typed, untyped = np.split(found.out_of_fold, 2, axis=1)
    typed = np.where((types > 0).numpy()[:, None], typed, untyped)  # the second ridge answers for calls without type
    ridge = torch.from_numpy(np.concatenate((typed, untyped))).float()
    return ridge, torch.cat((sight, blind)), found.r2.reshape(2, targets)


def _shares(ids: Tensor, size: int) -> Tensor:
    """(size,) how often each id from 1 occurs among (N,)."""
    return torch.bincount(ids, minlength=size + 1)[1:].to(torch.float32) / max(len(ids), 1)


def scales_of(columns: Mapping[str, slice], targets: int) -> list[Array]:
    """Scales of the ridge's features that are tried, each (D, 2 T): the second T targets may not use the types.

    All alike; without the kernel of the counts, which learns texts by heart where they are few; and that with more
    weight for the embedding, which pays with a good encoder. On 254 texts the R2 of the log was .12, .14, .08 with the
    token table and .15, .20, .24 with MiniLM.
    """
    plain = np.ones((max(at.stop for at in columns.values()) + BUCKETS, 2 * targets))
    plain[columns["types"], targets:] = 0.0
    tried = [plain]
    if columns["counts kernel"].start < columns["counts kernel"].stop:
        tried.append(plain.copy())
        tried[-1][columns["counts kernel"]] = 0.0
    if columns["embedding"].start < columns["embedding"].stop:
        tried.append(tried[-1].copy())
        tried[-1][columns["embedding"]] = EMBEDDING_SCALE
    return tried


def seen_of(
    heads: Heads, embedding: Tensor, counts: Tensor, types: Tensor, models: Tensor
) -> tuple[Any, Tensor, Tensor]:
    """Ridge features (N, D) as an array, and what the MLP sees (N, M), with types and without."""
    wide, sight, blind = np.empty((len(types), heads.basis.size), np.float32), [], []
    for at in parts(len(types)):
        part, seen = heads.basis(embedding[at], counts[at], types[at], models[at])
        wide[at] = part.numpy()
        sight.append(seen)
        blind.append(heads.basis(embedding[at], counts[at], torch.zeros_like(types[at]), models[at])[1])
    return wide, torch.cat(sight), torch.cat(blind)


def hashed(ids: NDArray[np.integer[Any]], weights: NDArray[np.float32]) -> csr_array:
    """Rows of length one, (N, BUCKETS), from buckets and weights (N, G), which stay as they are."""
    weights = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-6)
    n, width = weights.shape
    grams = csr_array(
        (weights.ravel(), ids.flatten(), np.arange(0, n * width + 1, width)), shape=(n, BUCKETS), dtype=np.float32
    )
    grams.sum_duplicates()  # in place: `ids` were copied, `weights` are new
    grams.eliminate_zeros()
    return grams


@torch.no_grad()
def _fit_start(
    start: Start, ridge: Tensor, logs: Array, types: NDArray[np.int64], fold: NDArray[np.int64], bins: int,
    novelty: float,
) -> Tensor:  # fmt: skip
    """Fit every target's start into the module; the training rows' cross-fitted start, (2 N, T, K)."""
    by_mode = ridge.double().numpy().reshape(2, *logs.shape)
    rows = []
    for t in range(logs.shape[1]):
        fitted = fit_start(by_mode[:, :, t], logs[:, t], types, len(start.by_type) - 1, fold, bins, novelty)
        for mode in (0, 1):
            start.centre[mode, t] = torch.from_numpy(fitted.bins[mode].centre)
            start.table[mode, t] = torch.from_numpy(fitted.bins[mode].table)
        start.by_type[:, t] = torch.from_numpy(fitted.by_type)
        start.trust[t] = torch.from_numpy(fitted.trust)
        rows.append(fitted.rows.reshape(-1, len(LEVELS)))
    return torch.from_numpy(np.stack(rows, axis=1)).float()


def idf_of(features: Features, first: NDArray[np.int64]) -> Tensor:
    """log((1 + texts) / (1 + texts with the bucket)) + 1, (BUCKETS,)."""
    ids, weights = features.gram_ids[first], features.gram_weights[first]
    frequency = np.bincount(ids[weights > 0], minlength=BUCKETS)
    return torch.from_numpy(np.log((1 + len(first)) / (1 + frequency)) + 1).float()


def parts(rows: int) -> list[slice]:
    """Stretches of rows whose grids of all members fit into memory at once."""
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]

"""One split of the predictor benchmark: trained on some rows of a log, asked about the others."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.bundle import copy_encoder, write_manifest
from swarmx.predict.features import Features
from swarmx.predict.fit import FitConfig
from swarmx.predict.heads import Material, write_heads
from swarmx.predict.runtime import Predictor
from swarmx.predict.targets import Targets
from swarmx.predict.train import describe, write_fallback
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Log:
    """A log's calls with all that is read of them, computed once for all splits.

    embedding, near : as in `Material`; scored : (N,) whether a row is asked about when it is held out
    """

    calls: list[CallRecord]
    wanted: Targets
    groups: NDArray[np.str_]
    found: Features
    embedding: NDArray[np.float32]
    near: int
    scored: NDArray[np.bool_]

    @property
    def caps(self) -> Array:
        """max_tokens of each call, (N,), infinite where it has none."""
        return np.array([np.inf if call.max_tokens is None else float(call.max_tokens) for call in self.calls])


@dataclass(frozen=True, slots=True)
class Split:
    """out : rows asked about; arms : target -> arm -> values (N, K), or (N, R) of arms without the others"""

    out: Rows
    arms: dict[str, dict[str, Array]]
    predictor: Predictor
    training_s: float


def fit_swarmx(log: Log, inside: Rows, out: Rows, config: FitConfig, encoder: Path) -> Split:
    """Train as `swarmx train` does, on the rows `inside`, and load what it wrote."""
    began = time.process_time()
    names, values = log.wanted.names, log.wanted.values
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        copy_encoder(encoder, directory)
        description = describe(log.calls, log.calls, names, values[inside], inside, [])
        write_fallback(directory, log.calls, names, values, inside)
        material = Material(log.found.take(inside), log.embedding[inside], Targets(names, values[inside]),
                            log.groups[inside], near=log.near)  # fmt: skip
        fitted, _ = write_heads(directory, material, config, lambda what, done: None)
        took = time.process_time() - began
        write_manifest(directory, description | fitted)
        predictor = Predictor.load(directory, cache_bytes=0)
    asked, embedding = log.found.take(out), log.embedding[out]
    hidden = replace(asked, labels=tuple(("", model) for _, model in asked.labels))
    grids = {
        "swarmx": predictor.from_features(asked, embedding),
        "swarmx, type hidden": predictor.from_features(hidden, embedding),
    }
    arms = {name: {arm: grid[:, t] for arm, grid in grids.items()} for t, name in enumerate(names)}
    return Split(out, arms, predictor, took)

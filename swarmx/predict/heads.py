"""The heads of a model directory: fitted on features and embeddings, calibrated, exported. The text is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.borrow import MEDIAN, offsets, spread
from swarmx.predict.calibrate import calibrate
from swarmx.predict.checkpoint import Checkpoint
from swarmx.predict.export import export_heads
from swarmx.predict.features import Features
from swarmx.predict.fit import FitConfig, Fitted, Progress, distinct, fit_heads
from swarmx.predict.split import folds
from swarmx.predict.targets import Targets


@dataclass(frozen=True, slots=True)
class Material:
    """What heads learn from, N calls. features : their texts may be digests, equal for equal texts

    embedding : (N, E) of each call; learned : their targets; groups : (N,) prompt groups, kept together in folds
    weights : (N,) how much each row counts, mean 1; None for all alike
    near : how many of the embedding's last columns say how near the call's tools are
    """

    features: Features
    embedding: NDArray[np.float32]
    learned: Targets
    groups: NDArray[np.str_]
    weights: NDArray[np.float64] | None = None
    near: int = 0


def write_heads(
    directory: Path, material: Material, config: FitConfig, progress: Progress, checkpoint: Checkpoint | None = None
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Fit and calibrate; write `heads.onnx`. Returns its part of the manifest, and calibrated log quantiles
    (2, N, T, K) by members that had not seen the row's group, with its type and without."""
    found, learned = material.features, material.learned
    fold = folds(material.groups, config.members, config.seed, [kind or None for kind, _ in found.labels])
    fitted = fit_heads(
        found, material.embedding, learned.values, material.groups, fold, config, progress, material.weights,
        checkpoint, material.near,
    )  # fmt: skip
    novelty, logs = 1 / distinct(found.texts)[1], np.log1p(learned.values)
    weights = np.ones(len(logs)) if material.weights is None else material.weights
    export_heads(fitted.heads, directory / "heads.onnx")
    corrections, moved, own = {}, dict[str, list[list[float]]](), fitted.out_of_fold
    repeated = distinct([(model, text) for (_, model), text in zip(found.labels, found.texts, strict=True)])[1]
    models, count = fitted.vocabulary.ids(found.labels)[1], len(fitted.vocabulary.models)
    for t, name in enumerate(learned.names):
        if count > 1:
            gaps = logs[:, t] - own[:, :, t, MEDIAN]
            added = [offsets(gap, models, count, weights / repeated) for gap in gaps]
            own[:, :, t] += np.stack(added)[:, models, None]
            moved[name] = [mode.round(6).tolist() for mode in added]
        modes = [calibrate(mode[:, t], logs[:, t], weights, novelty=novelty) for mode in own]
        for mode, found_shifts in zip(own, modes, strict=True):
            mode[:, t] = found_shifts.apply(mode[:, t])
        corrections[name] = [mode.as_json() for mode in modes]
    description = {
        "model_spread": _model_spread(fitted, learned.names),
        "model_offset": moved,
        "types": list(fitted.vocabulary.types),
        "models": list(fitted.vocabulary.models),
        "calibration": corrections,
        "fit": {
            "epochs": fitted.epochs,
            "seed": config.seed,
            "ridge_r2_out_of_fold": fitted.ridge_r2.round(4).tolist(),
            "networks_weight": [
                [round(share, 2) for share in own] for own in fitted.heads.trust.tolist()
            ],  # of each level
            "loss_over_ridge_alone": fitted.gain.round(4).tolist(),
        },
    }
    return description, own


def _model_spread(fitted: Fitted, names: tuple[str, ...]) -> dict[str, float]:
    """How much a new model's log may lie beside the known ones', per target; empty when the log holds one model."""
    known, first = fitted.vocabulary.models, len(fitted.vocabulary.types)
    if len(known) < 2:
        return {}
    weights = fitted.heads.dense[first : first + len(known), : len(names)].double().numpy()
    offsets = weights * fitted.heads.basis.label_scale  # (models, T), in log units
    return {name: round(spread(offsets[:, t]), 6) for t, name in enumerate(names)}

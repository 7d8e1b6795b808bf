"""From an execution log to a model directory: split, features, fit, calibrate, export, measure, describe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import swarmx
from swarmx.drift import Reference, group_of
from swarmx.errors import BadInput
from swarmx.files import replacing_directory
from swarmx.predict.baselines import fit_groups, keys_of
from swarmx.predict.bundle import ENCODER_FILES, copy_encoder, read_json, sha256, shipped, write_manifest
from swarmx.predict.cache import digest
from swarmx.predict.checkpoint import Checkpoint, checkpoint_of, key_of
from swarmx.predict.embed import TextEncoder
from swarmx.predict.evaluate import evaluate
from swarmx.predict.features import features
from swarmx.predict.fit import FitConfig, Progress
from swarmx.predict.further import fit_further
from swarmx.predict.nearness import embedded, near_of
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import groups_of, testing_rows
from swarmx.predict.targets import Targets, targets, usable
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

if TYPE_CHECKING:
    from swarmx.predict.heads import Material

FEWEST_ROWS = 50  # finished calls below which not even quantiles per type mean anything
FEWEST_GROUPS = 20  # prompt groups below which text cannot be told from template
OUT_OF_FOLD = "out_of_fold.npz"  # call_id (N,), values (N, T, K)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """fit : of the head; encoder : directory with the encoder's three files, None for the shipped one;
    text : False trains without prompts; plots : draw the card's pictures (needs matplotlib), and study the log for
    them: learning curve and ablation of features"""

    fit: FitConfig = field(default_factory=FitConfig)
    encoder: Path | None = None
    text: bool = True
    plots: bool = True


def embed_here(directory: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embeddings of texts, (N, E), by the encoder in that directory, on this machine; one text at a time.

    What else is in a batch changes the last bits of an embedding, and a fit makes another model of that.
    """
    encoder = TextEncoder.load(directory)
    return np.concatenate([encoder.embed([text]) for text in texts])


def fit_here(
    directory: Path, material: Material, config: FitConfig, progress: Progress
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """`heads.write_heads`, on this machine."""
    from swarmx.predict.heads import write_heads

    return write_heads(directory, material, config, progress)


def threads_here() -> dict[str, str]:
    """Environment under which another process fits with this one's threads: their number changes sums' last bits."""
    import torch

    known = os.environ
    cores = known.get("OMP_NUM_THREADS") or str(os.cpu_count() or 1)
    return {
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "OPENBLAS_NUM_THREADS": known.get("OPENBLAS_NUM_THREADS") or cores,
        "MKL_NUM_THREADS": known.get("MKL_NUM_THREADS") or str(torch.get_num_threads()),
    }


@dataclass(frozen=True, slots=True)
class Means:
    """Who does the long work; with the same config, the same model to float tolerance. As `embed_here`, `fit_here`."""

    embed: Callable[[Path, Sequence[str]], NDArray[np.float32]] = embed_here
    fit: Callable[[Path, Material, FitConfig, Progress], tuple[dict[str, Any], NDArray[np.float64]]] = fit_here


HERE = Means()


def resuming(checkpoint: Checkpoint) -> Means:
    """The work done here, each finished step kept, and taken from there when an earlier run was killed."""

    def embed(directory: Path, texts: Sequence[str]) -> NDArray[np.float32]:
        name = f"embedding {digest(tuple(texts)).hex()}"  # of prompts, and of tools where the encoder reads them
        earlier = checkpoint.load(name)
        if earlier is not None:
            return earlier["embedding"]
        found = embed_here(directory, texts)
        checkpoint.store(name, {"embedding": found})
        return found

    def fit(
        directory: Path, material: Material, config: FitConfig, progress: Progress
    ) -> tuple[dict[str, Any], NDArray[np.float64]]:
        from swarmx.predict.heads import write_heads

        return write_heads(directory, material, config, progress, checkpoint)

    return Means(embed, fit)


def train_resumable(
    records: Sequence[CallRecord],
    out: Path,
    config: TrainConfig | None = None,
    progress: Progress = lambda what, done: None,
) -> dict[str, Any]:
    """`train` on this machine, which goes on where an earlier run of the same log and config was killed.

    What is finished lies in `.NAME.progress` beside `out`, and is removed at the end.
    """
    config = config or TrainConfig()
    source = config.encoder or shipped()
    encoder = [sha256(source / name) for name in ENCODER_FILES if (source / name).is_file()]
    checkpoint, known = checkpoint_of(out, key_of(records, config, encoder, swarmx.__version__))
    if known:
        progress("resumed", 1.0)
    try:
        metrics = train(records, out, config, progress, means=resuming(checkpoint))
    except BadInput:
        checkpoint.remove()
        raise
    checkpoint.remove()
    return metrics


def train(
    records: Sequence[CallRecord],
    out: Path,
    config: TrainConfig | None = None,
    progress: Progress = lambda what, done: None,
    testing: NDArray[np.bool_] | None = None,
    means: Means = HERE,
) -> dict[str, Any]:
    """Train on a log and write the model directory `out`, whole or not at all; returns its metrics.

    testing : which of the usable rows to keep for the metrics and never train on; a fixed fifth of the prompt groups
        (`split.testing_rows`) when not given
    Raises BadInput when the log holds too little to learn from.
    """
    config = config or TrainConfig()
    rows = usable(records)
    if len(rows) < FEWEST_ROWS:
        raise BadInput(
            f"the log holds {len(rows)} calls that ended well of {len(records)}; training needs {FEWEST_ROWS}"
        )
    wanted = targets(records, rows)
    calls = [records[i] for i in rows]
    groups = groups_of(calls)
    testing = testing_rows(calls) if testing is None else testing
    notes, text = _what_can_be_learned(calls, groups, testing, config)
    inside = np.flatnonzero(~testing) if testing.any() and not testing.all() else np.arange(len(calls))
    studied: dict[str, Any] | None = None
    with replacing_directory(out) as directory:
        description = describe(records, calls, wanted.names, wanted.values[inside], inside, notes)
        write_fallback(directory, calls, wanted.names, wanted.values, inside)
        if text:
            learned = Targets(wanted.names, wanted.values[inside])
            mine = [calls[i] for i in inside]
            fitted, studied = _fit_text(directory, mine, learned, groups[inside], config, progress, notes, means)
            description |= fitted
        else:
            mine = [calls[i] for i in inside]
            kinds = keys_of(mine, "per_type")
            write_reference(directory, mine, fit_groups(kinds, wanted.values[inside, 0]).values(kinds))
        write_manifest(directory, description)
        progress("evaluation", 0.0)
        predictor = Predictor.load(directory)
        metrics = evaluate(predictor, records, testing) | {"notes": notes}
        metrics |= {} if studied is None else {"study": studied}
        metrics |= fit_further(directory, calls, testing, predictor, config.fit.seed)
        (directory / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
        from swarmx.predict.card import write_card

        write_card(directory, description, metrics, plots=config.plots)
        write_manifest(directory, description)
        progress("evaluation", 1.0)
    return metrics


def _what_can_be_learned(
    calls: Sequence[CallRecord], groups: NDArray[np.str_], testing: NDArray[np.bool_], config: TrainConfig
) -> tuple[list[str], bool]:
    """Sentences about what the log lacks, and whether text can be learned from."""
    notes, text = [], config.text
    if not any(call.prompt for call in calls):
        text = False
        notes.append("No call has its prompt: only quantiles per call type were learned.")
    elif len(set(groups[~testing])) < FEWEST_GROUPS:
        text = False
        notes.append(f"Only {len(set(groups))} prompt groups: only quantiles per call type were learned.")
    if not any(call.type for call in calls):
        notes.append("No call has a type: the fallback is the quantiles of all calls.")
    if len({call.device for call in calls}) < 2:
        notes.append("One device only: nothing can be said about speed on others.")
    if not testing.any() or testing.all():
        notes.append("Too few prompt groups to hold any out: the metrics are on the training rows.")
    capped = np.mean([call.max_tokens is not None and call.output_tokens >= call.max_tokens for call in calls])
    if capped > 0.1:
        notes.append(f"{capped:.0%} of the answers were cut at max_tokens: longer ones look like the cap.")
    return notes, text


def describe(
    records: Sequence[CallRecord], calls: Sequence[CallRecord], names: tuple[str, ...], values: NDArray[np.float64],
    inside: NDArray[np.int64], notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    """What the manifest says before anything is fitted. values : (N, T) of the rows trained on, `inside` all of them"""
    return {
        "targets": list(names),
        "levels": LEVELS.tolist(),
        "types": [],
        "models": sorted({c.model for c in calls}),
        "largest": values.max(axis=0).tolist(),
        "calibration": {},
        "log": {"rows": len(records), "ended_well": len(calls), "trained_on": len(inside)},
        "notes": notes,
    }


def write_fallback(
    directory: Path,
    calls: Sequence[CallRecord],
    names: tuple[str, ...],
    values: NDArray[np.float64],
    inside: NDArray[np.int64],
) -> None:
    """fallback.json: quantiles per type of each target, of the rows `inside`. values : (N, T) of all calls"""
    kinds = keys_of([calls[i] for i in inside], "per_type")
    tables = {name: fit_groups(kinds, values[inside, t]).as_json() for t, name in enumerate(names)}
    (directory / "fallback.json").write_text(json.dumps(tables) + "\n")


def _fit_text(
    directory: Path, calls: Sequence[CallRecord], learned: Targets, groups: NDArray[np.str_],
    config: TrainConfig, progress: Progress, notes: list[str], means: Means,
) -> tuple[dict[str, Any], dict[str, Any] | None]:  # fmt: skip
    """Fit, calibrate and export the head; returns its part of the manifest and the study; may add to the notes."""
    from swarmx.predict.heads import Material

    progress("embeddings", 0.0)
    copy_encoder(config.encoder or shipped(), directory)
    if taught := read_json(directory / "encoder.json").get("learned_from"):
        notes.append(
            f"The encoder has learned from {taught}: if that is this log, the out-of-fold predictions of its training "
            "calls, and what is calibrated on them, are a little too good."
        )
    found = features(calls)
    near = near_of(directory)
    embedding = embedded(found, partial(means.embed, directory), near > 0)
    progress("embeddings", 1.0)
    material = Material(found, embedding, learned, groups, near=near)
    description, logs = means.fit(directory, material, config.fit, progress)
    _write_out_of_fold(directory, calls, logs[0])
    if not config.plots:
        return description, None
    from swarmx.predict.study import study

    progress("study", 0.0)
    studied = study(material, config.fit)
    progress("study", 1.0)
    return description, studied


def _write_out_of_fold(directory: Path, calls: Sequence[CallRecord], logs: NDArray[np.float64]) -> None:
    """Calibrated grids of the training rows by the members that had not seen the row's template: a simulation of the
    training log needs predictions as good as they will be on new templates, not better."""
    values = np.expm1(np.maximum(logs, 0.0)).astype(np.float32)  # (N, T, K)
    write_reference(directory, calls, values[:, 0].astype(np.float64))
    ids = np.array([call.call_id for call in calls], dtype=np.str_)
    np.savez_compressed(directory / OUT_OF_FOLD, call_id=ids, values=values)


def write_reference(directory: Path, calls: Sequence[CallRecord], tokens: NDArray[np.float64]) -> None:
    """drift.json: what a monitor holds later calls of this model against. tokens : (N, K), best out of fold"""
    caps = np.array([np.inf if call.max_tokens is None else float(call.max_tokens) for call in calls])
    observed = np.array([float(call.output_tokens) for call in calls])
    groups = [group_of(call) for call in calls]
    reference = Reference.from_arrays(groups, np.minimum(tokens, caps[:, None]), np.minimum(observed, caps))
    (directory / "drift.json").write_text(json.dumps(reference.to_json()) + "\n")

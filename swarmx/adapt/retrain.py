"""One retraining: examples in, a complete model directory out. Only the heads, their calibration and the fallback
change; the encoder is the base model's. The fit itself is that of `swarmx train`, with a plan that fits its limits.

Examples of drifted groups from before the change are moved to the level after it, target by target, by the change in
the median of log (observed / predicted). Where it is of another kind the challenger is poor, and loses the contest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.example import Example, features_of, targets_of
from swarmx.drift import Group, Reference
from swarmx.errors import BadInput
from swarmx.files import replacing_directory
from swarmx.predict.baselines import fit_groups
from swarmx.predict.bundle import copy_encoder, write_manifest
from swarmx.predict.features import GRAMS
from swarmx.predict.metrics import report
from swarmx.predict.nearness import near_of
from swarmx.predict.ridge import STRENGTHS
from swarmx.predict.runtime import Predictor
from swarmx.predict.targets import Targets
from swarmx.quantiles import LEVELS

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]
MEDIAN = int(np.searchsorted(LEVELS, 0.5))
FEWEST_ROWS, FEWEST_GROUPS, PART = 50, 20, 2048  # PART: examples predicted at once
FEW = 10_000  # calls up to which the whole fit takes less than a minute
AROUND = 1000  # calls before an alarm's own estimate among which a beginning is looked for
ENOUGH = 20  # fresh rows of a group before its own change counts, not the pool's
CERTAIN = 4.0  # standard errors that a change must exceed; its place was chosen, which makes it look larger


@dataclass(frozen=True, slots=True)
class Plan:
    """What a retraining costs; by default what a minute of one core allows.

    rows : examples that are read, see `thinned`; members : networks, and folds; left_out : folds that a member leaves
    out; grams : n-grams of a prompt, the most frequent ones; the rest as in `predict.fit.FitConfig`
    """

    rows: int = 50_000
    members: int = 4
    left_out: int = 1
    landmarks: int = 64
    count_landmarks: int = 48
    grams: int = 64
    hidden: int = 48
    batch: int = 1024
    epochs: int = 6
    patience: int = 2
    strengths: tuple[float, ...] = (3.0,)
    seed: int = 0

    @classmethod
    def of(cls, rows: int, seed: int = 0) -> Plan:
        """The fit of `swarmx train` where there are few calls, with fewer epochs; the default where there are many."""
        if rows > FEW:
            return cls(seed=seed)
        return cls(FEW, 8, 3, 256, 192, GRAMS, 64, 256, 30, 5, STRENGTHS, seed)


@dataclass(frozen=True, slots=True)
class Changed:
    """A group that drifted. A type "*" stands for all of a device's.

    seq : about where in the stream it began, as the alarm has it; alarmed : where the alarm was raised
    """

    group: Group
    seq: int
    alarmed: int
    reason: str = ""

    def holds(self, example: Example) -> bool:
        kind, model, device = self.group
        return (example.model, example.device) == (model, device) and kind in ("*", example.kind)


@dataclass(frozen=True)
class Job:
    """examples, weights : as `Reservoir.draw` gives them; base : model directory with the encoder; changed : newest"""

    examples: Sequence[Example]
    weights: Array
    base: Path
    changed: Sequence[Changed] = ()
    reason: str = ""
    plan: Plan = field(default_factory=Plan)


def retrain(job: Job, out: Path, progress: Progress = lambda what, done: None, release: bool = False) -> dict[str, Any]:
    """Write the model directory `out`, whole or not at all; returns its metrics, out of fold.

    release : empty the list `job.examples` once they are read, for a process that has no other use for them
    Raises BadInput when there is too little to learn from or the base model has no encoder.
    """
    from swarmx.predict.card import write_card
    from swarmx.predict.heads import Material, write_heads

    job = thinned(job)
    examples = job.examples
    groups = np.array([example.prompt_group for example in examples], dtype=np.str_)
    if len(examples) < FEWEST_ROWS or len(set(groups)) < FEWEST_GROUPS:
        raise BadInput(
            f"{len(examples)} calls of {len(set(groups))} prompt groups are too few to retrain on; it takes "
            f"{FEWEST_ROWS} of {FEWEST_GROUPS}"
        )
    found, embedding = features_of(examples, job.plan.grams)
    learned, moved = rebased(targets_of(examples), job)
    notes = _notes(job, moved)
    examples = [replace(example, embedding=b"", counts=b"", grams=b"") for example in examples]
    if release and isinstance(job.examples, list):
        job.examples.clear()
    with replacing_directory(out) as directory:
        copy_encoder(job.base, directory)
        kinds = [example.type or None for example in examples]
        tables = {name: fit_groups(kinds, learned.column(name)).as_json() for name in learned.names}
        (directory / "fallback.json").write_text(json.dumps(tables) + "\n")
        material = Material(found, embedding, learned, groups, job.weights, near_of(directory))
        heads, logs = write_heads(directory, material, _fit_config(job.plan), progress)
        description = _description(learned, len(examples), notes) | heads | {"grams": job.plan.grams}
        values = np.expm1(np.maximum(logs, 0.0))
        metrics = _metrics(learned, values, kinds, notes)
        _write_reference(directory, examples, values[0, :, 0], learned.values[:, 0])
        (directory / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
        write_card(directory, description, metrics, plots=False)
        write_manifest(directory, description)
    return metrics


def thinned(job: Job) -> Job:
    """The job with at most `plan.rows` examples: all those since the alarms, as far as they are half of it, and an
    even draw of the others."""
    if len(job.examples) <= job.plan.rows:
        return job
    rng = np.random.default_rng(job.plan.seed)
    alarmed = min((changed.alarmed for changed in job.changed), default=np.inf)
    late = np.flatnonzero([example.seq >= alarmed for example in job.examples])[-job.plan.rows // 2 :]
    rest = np.setdiff1d(np.arange(len(job.examples)), late)
    kept = np.sort(np.concatenate((late, rng.choice(rest, job.plan.rows - len(late), replace=False))))
    weights = job.weights[kept]
    return replace(job, examples=[job.examples[i] for i in kept], weights=weights / weights.mean())


def rebased(learned: Targets, job: Job) -> tuple[Targets, dict[Group, float]]:
    """The targets with stale rows of drifted groups moved; by what factor each group's tokens were.

    Targets that the base model does not know are left alone.
    """
    if not job.changed:
        return learned, {}
    model = Predictor.load(job.base)
    parts = [job.examples[at : at + PART] for at in range(0, len(job.examples), PART)]
    medians = np.concatenate([model.from_features(*features_of(part))[:, :, MEDIAN] for part in parts])  # (N, T)
    gaps = {
        t: np.log1p(learned.values[:, t]) - np.log1p(medians[:, model.targets.index(name)])
        for t, name in enumerate(learned.names)
        if name in model.targets
    }
    stale, fresh = _sides(job, gaps.get(0))
    if not (stale.any() and fresh.any()):
        return learned, {}
    of: dict[Group, list[int]] = {}
    for i, example in enumerate(job.examples):
        of.setdefault(example.group, []).append(i)
    values, moved = learned.values.copy(), {}
    for t, gap in gaps.items():
        pool = _change(gap, stale, fresh)
        for group, members in of.items():
            at = np.zeros(len(gap), bool)
            at[members] = True
            shift = _change(gap, stale & at, fresh & at) if (fresh & at).sum() >= ENOUGH else pool
            rows = stale & at
            if shift == 0:
                continue
            values[rows, t] = np.expm1(np.maximum(np.log1p(values[rows, t]) + shift, 0.0))
            if t == 0 and rows.any():
                moved[group] = float(np.exp(shift))
    return Targets(learned.names, values), moved


def _sides(job: Job, gap: Array | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which examples lie before the change of a group that they belong to, and which after, (N,) each.

    gap : (N,) log (observed / predicted) of the tokens, by which each beginning is found again: an alarm knows it badly
    """
    seqs = np.array([example.seq for example in job.examples])
    since = np.full(len(seqs), -1)
    for changed in job.changed:
        rows = np.flatnonzero([changed.holds(example) for example in job.examples])
        if len(rows) and gap is not None:
            since[rows] = np.maximum(since[rows], _beginning(seqs[rows], gap[rows], changed))
    return (since >= 0) & (seqs < since), (since >= 0) & (seqs >= since)


def _beginning(seqs: Array, gap: Array, changed: Changed) -> int:
    """Where the gaps of one group change most clearly, at the alarm's place at the latest. Examples are in order.

    The standardised rank statistic, largest over all places; without the division, as Pettitt (1979), A Non-Parametric
    Approach to the Change-Point Problem, has it, a slow drift in the middle beats a jump near the end.
    """
    recent = np.flatnonzero(seqs >= changed.seq - AROUND)
    n = len(recent)
    if n < 2 * ENOUGH:
        return changed.seq
    ranks = np.argsort(np.argsort(gap[recent], kind="stable"), kind="stable") + 1.0
    at = np.arange(1, n)
    clear = np.abs(np.cumsum(ranks)[:-1] - at * (n + 1) / 2) / np.sqrt(at * (n - at))
    clear[(at < ENOUGH // 2) | (n - at < ENOUGH // 2) | (seqs[recent][1:] > changed.alarmed)] = 0
    return int(seqs[recent][int(clear.argmax()) + 1])


def _change(gap: Array, stale: NDArray[np.bool_], fresh: NDArray[np.bool_]) -> float:
    """Change of the median from stale to fresh rows; 0 unless it is certain."""
    before, after = gap[stale], gap[fresh]
    if len(before) < 2 or len(after) < 2:
        return 0.0
    change = float(np.median(after) - np.median(before))
    spread = max(_spread(before), _spread(after))  # a handful of rows may lie close together by chance
    error = 1.25 * spread * np.sqrt(1 / len(before) + 1 / len(after))
    return change if abs(change) > CERTAIN * error else 0.0


def _spread(sample: Array) -> float:
    """Standard deviation, told from the quartiles."""
    low, high = np.quantile(sample, (0.25, 0.75))
    return float(high - low) / 1.349


def _fit_config(plan: Plan) -> Any:
    from swarmx.predict.fit import FitConfig

    return FitConfig(
        seed=plan.seed, epochs=plan.epochs, patience=plan.patience, batch=plan.batch, hidden=plan.hidden,
        members=plan.members, left_out=plan.left_out, landmarks=plan.landmarks, most_landmarks=4 * plan.landmarks,
        count_landmarks=plan.count_landmarks, strengths=plan.strengths,
    )  # fmt: skip


def _notes(job: Job, moved: Mapping[Group, float]) -> list[str]:
    notes = [f"Retrained from {len(job.examples):,} recent calls ({job.reason or 'asked for'}); encoder unchanged."]
    if moved:
        strongest = sorted(moved.items(), key=lambda pair: -abs(np.log(pair[1])))[:3]
        told = ", ".join(f"{group[0] or 'untyped'} ×{factor:.2f}" for group, factor in strongest)
        notes.append(f"Older calls of {len(moved)} drifted groups were moved to their new level: {told}.")
    return notes


def _description(learned: Targets, rows: int, notes: list[str]) -> dict[str, Any]:
    return {
        "targets": list(learned.names),
        "levels": LEVELS.tolist(),
        "largest": learned.values.max(axis=0).tolist(),
        "log": {"rows": rows, "ended_well": rows, "trained_on": rows},
        "notes": notes,
    }


def _metrics(learned: Targets, values: Array, kinds: Sequence[str | None], notes: list[str]) -> dict[str, Any]:
    """Out-of-fold figures of both arms beside the types' quantiles, which have seen the rows that they are held to."""
    notes = [*notes, "The figures are out of fold: each call is predicted by networks that had not seen its template."]
    out: dict[str, Any] = {"test_rows": len(kinds), "train_rows": len(kinds), "targets": {}, "notes": notes}
    arms = ("with_type", "without_type")
    for t, name in enumerate(learned.names):
        observed = learned.values[:, t]
        baseline = {"per_type": fit_groups(kinds, observed).values(kinds)}
        out["targets"][name] = {a: report(grid[:, t], observed, baseline) for a, grid in zip(arms, values, strict=True)}
    return out


def _write_reference(directory: Path, examples: Sequence[Example], values: Array, observed: Array) -> None:
    """drift.json: what the monitor will hold later calls of this model against. values : (N, K) tokens, out of fold"""
    caps = np.array([example.max_tokens for example in examples])
    groups = [example.group for example in examples]
    reference = Reference.from_arrays(groups, np.minimum(values, caps[:, None]), np.minimum(observed, caps))
    (directory / "drift.json").write_text(json.dumps(reference.to_json()) + "\n")


def job_of(data: Mapping[str, Any], examples: Sequence[Example], weights: Array) -> Job:
    """From what `describe` wrote. Raises KeyError or TypeError when it is something else."""
    plan = Plan(**{**data["plan"], "strengths": tuple(data["plan"]["strengths"])})
    changed = [Changed((g[0], g[1], g[2]), seq, alarmed, reason) for g, seq, alarmed, reason in data["changed"]]
    return Job(examples, weights, Path(data["base"]), changed, data["reason"], plan)


def describe(job: Job) -> dict[str, Any]:
    """Everything but the examples, as JSON has it."""
    plan = {name: getattr(job.plan, name) for name in Plan.__slots__}
    changed = [[list(c.group), c.seq, c.alarmed, c.reason] for c in job.changed]
    return {"plan": plan, "changed": changed, "reason": job.reason, "base": str(job.base)}

"""What a workflow will still ask for, at its beginning and after each of its calls: how many calls of each model, how
many output tokens in them, and which calls come next.

    state --features--> ridge prediction --> quantiles seen near it, mixed with those of the state's kind
          --> calibration --> QuantileGrid                                               source "neural"
    a state whose label the log did not have --> quantiles of all states                 source "pool_mean"
    anything that goes wrong                 --> quantiles of the state's kind           source "per_type"

Calls to come are those that no state has seen arrive yet; live calls are not among them. numpy only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.bundle import read_json, read_manifest
from swarmx.predict.calibrate import Calibration, ordered
from swarmx.predict.packed import packed, unpacked
from swarmx.predict.start import Bins
from swarmx.predict.state_features import StateRow, StateVocabulary, expected_logs, matrix, row_of, without_text
from swarmx.predict.workflow_state import WorkflowState
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Source

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
FILE = "downstream.json"
CALLS, WORK, TOTAL = "calls:", "work:", "work"  # the first two are followed by a model's name


@dataclass(frozen=True, slots=True)
class Branch:
    """A kind of call that may follow."""

    type: str | None
    model: str


@dataclass(frozen=True, slots=True)
class ModelOutlook:
    """What comes at one model, each (K,). calls : to come; work : output tokens in them"""

    calls: QuantileGrid
    work: QuantileGrid


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a workflow still holds beyond the calls that have arrived.

    models : per model of the log; work : output tokens of all models (K,)
    branches : kinds of calls -> probability that the event's call releases at least one directly (at a beginning: that
        the root will); the likeliest first, those under 1 % left out
    ends : probability that it releases none
    """

    models: Mapping[str, ModelOutlook]
    work: QuantileGrid
    branches: Mapping[Branch, float]
    ends: float
    source: Source


@dataclass(frozen=True, slots=True)
class Quantiles:
    """One learned target. weights : (D,); intercept; bins : of the ridge prediction; by_kind : (kinds + 1, K) log
    quantiles, row 0 of all states; trust : (kinds + 1,) weight of the bins; largest ever seen"""

    weights: Array
    intercept: float
    bins: Bins
    by_kind: Array
    trust: Array
    calibration: Calibration
    largest: float

    def logs(self, features: Array, kinds: NDArray[np.int64]) -> Array:
        """Calibrated log quantiles, (N, K); not decreasing, never negative, at most four times the largest seen."""
        ridge = features @ self.weights + self.intercept
        trust = self.trust[kinds][:, None]
        logs = self.calibration.apply(trust * self.bins.at(ridge) + (1 - trust) * self.by_kind[kinds])
        return ordered(np.clip(logs, 0.0, np.log1p(4 * self.largest + 4)))

    def as_json(self) -> dict[str, Any]:
        return {
            "weights": packed(self.weights), "intercept": self.intercept, "largest": self.largest,
            "centre": self.bins.centre.tolist(), "table": packed(self.bins.table), "by_kind": packed(self.by_kind),
            "trust": self.trust.tolist(), "calibration": self.calibration.as_json(),
        }  # fmt: skip

    @classmethod
    def of_json(cls, data: Mapping[str, Any], vocabulary: StateVocabulary) -> Quantiles:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        rows, k = len(vocabulary.kinds) + 1, len(LEVELS)
        centre = np.array(data["centre"], dtype=float)
        if centre.ndim != 1 or not np.all(np.diff(centre) >= 0):
            raise ValueError("bins need middles that do not decrease")
        trust = np.array(data["trust"], dtype=float).reshape(rows)
        return cls(
            unpacked(data["weights"], vocabulary.size), float(data["intercept"]),
            Bins(centre, unpacked(data["table"], len(centre), k)), unpacked(data["by_kind"], rows, k), trust,
            Calibration.of_json(data["calibration"]), float(data["largest"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Branches:
    """Which calls come next. names : B kinds; weights : (D + 1, B + 1), the last row an intercept, the last column for
    "none"; table : (kinds + 1, B + 1) shares seen after each kind of state; learned : the weights beat the table"""

    names: tuple[Branch, ...]
    weights: Array
    table: Array
    learned: bool

    def probabilities(self, features: Array, kinds: NDArray[np.int64]) -> Array:
        """(N, B + 1) of each kind of call and of none."""
        if not self.learned:
            return np.asarray(self.table[kinds])
        z = np.clip(features @ self.weights[:-1] + self.weights[-1], -30, 30)
        learned: Array = 1 / (1 + np.exp(-z))
        return np.where((kinds > 0)[:, None], learned, self.table[kinds])

    def as_json(self) -> dict[str, Any]:
        names = [[name.type, name.model] for name in self.names]
        return {"names": names, "weights": packed(self.weights), "table": packed(self.table), "learned": self.learned}

    @classmethod
    def of_json(cls, data: Mapping[str, Any], vocabulary: StateVocabulary) -> Branches:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        names = tuple(Branch(None if kind is None else str(kind), str(model)) for kind, model in data["names"])
        weights = unpacked(data["weights"], vocabulary.size + 1, len(names) + 1)
        table = unpacked(data["table"], len(vocabulary.kinds) + 1, len(names) + 1)
        return cls(names, weights, table, bool(data["learned"]))


@dataclass(frozen=True, slots=True)
class Variant:
    """All that is learned from states read one way: with what their texts had led to expect, or without.

    targets : name -> quantiles
    """

    targets: Mapping[str, Quantiles]
    branches: Branches

    def as_json(self) -> dict[str, Any]:
        return {"targets": {n: t.as_json() for n, t in self.targets.items()}, "branches": self.branches.as_json()}

    @classmethod
    def of_json(cls, data: Mapping[str, Any], vocabulary: StateVocabulary) -> Variant:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        targets = {str(name): Quantiles.of_json(found, vocabulary) for name, found in data["targets"].items()}
        return cls(targets, Branches.of_json(data["branches"], vocabulary))


class DownstreamPredictor:
    """Outlooks of workflows. Build it with `load`; it knows no clock and never raises on a state.

    plain : used for states without predictions; text : for those with, where that was better; every target may be in
    one of them or in both, and `plain` has them all
    models : that the log's workflows called
    """

    def __init__(self, vocabulary: StateVocabulary, plain: Variant, text: Variant, version: str = "") -> None:
        self.vocabulary, self.plain, self.text, self.version = vocabulary, plain, text, version
        self.targets = tuple(plain.targets)
        self.models = tuple(name[len(CALLS) :] for name in self.targets if name.startswith(CALLS))

    @classmethod
    def load(cls, directory: str | Path) -> DownstreamPredictor:
        """Read `downstream.json` of a model directory. Raises BadInput when the directory is unusable or has none."""
        directory = Path(directory)
        manifest = read_manifest(directory)
        if FILE not in manifest["files"]:
            raise BadInput(
                f"{directory} has no {FILE}: its log had no workflows of several calls, or the model is older; train "
                "again on a log with workflow_id"
            )
        try:
            return cls.of_json(read_json(directory / FILE), manifest["version"])
        except (KeyError, TypeError, ValueError) as problem:
            raise BadInput(f"{directory / FILE} is not usable ({problem!r}); train the model again") from None

    @classmethod
    def of_json(cls, data: Mapping[str, Any], version: str = "") -> DownstreamPredictor:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        vocabulary = StateVocabulary.of_json(data["vocabulary"])
        plain, text = (Variant.of_json(data[name], vocabulary) for name in ("plain", "text"))
        names = set(plain.targets)
        if TOTAL not in names or any(WORK + n[len(CALLS) :] not in names for n in names if n.startswith(CALLS)):
            raise ValueError(f"work of every model and in all is needed, got {', '.join(names)}")
        return cls(vocabulary, plain, text, version)

    def as_json(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary.as_json(), "plain": self.plain.as_json(), "text": self.text.as_json()}

    def predict(self, state: WorkflowState) -> Outlook:
        """What this workflow still holds."""
        return self.predict_all([state])[0]

    def predict_all(self, states: Sequence[WorkflowState]) -> list[Outlook]:
        """The same for many workflows at once, quicker than one by one."""
        values, shares, sources = self.arrays([_row(state) for state in states])
        grids = {name: values[:, t] for t, name in enumerate(self.targets)}
        return [
            self._outlook({n: QuantileGrid(LEVELS, v[i]) for n, v in grids.items()}, shares[i], sources[i])
            for i in range(len(states))
        ]

    def arrays(self, rows: Sequence[StateRow]) -> tuple[Array, Array, list[Source]]:
        """Values (N, T, K) in the order of `targets`, probabilities (N, B + 1) and sources of N states."""
        features, kinds = matrix(rows, self.vocabulary)
        plain = without_text(features, self.vocabulary)
        logs = np.stack([t.logs(plain, kinds) for t in self.plain.targets.values()], axis=1)  # (N, T, K)
        shares = self.plain.branches.probabilities(plain, kinds)
        read = np.flatnonzero([row.expected is not None and row.expected_root is not None for row in rows])
        if read.size:
            for name, target in self.text.targets.items():
                logs[read, self.targets.index(name)] = target.logs(features[read], kinds[read])
            if self.text.branches.learned:
                shares[read] = self.text.branches.probabilities(features[read], kinds[read])
        sources: list[Source] = ["neural" if kind else "pool_mean" for kind in kinds]
        for i in np.flatnonzero((kinds == 0) | ~np.isfinite(logs).all(axis=(1, 2))).tolist():
            logs[i] = np.stack([target.by_kind[kinds[i]] for target in self.plain.targets.values()])
            sources[i] = "per_type" if kinds[i] else "pool_mean"
        values: Array = np.expm1(logs)
        return values, shares, sources

    def _outlook(self, grids: Mapping[str, QuantileGrid], shares: Array, source: Source) -> Outlook:
        models = {name: ModelOutlook(grids[CALLS + name], grids[WORK + name]) for name in self.models}
        names = self.plain.branches.names
        order = np.argsort(-shares[:-1], kind="stable").tolist()
        branches = {names[b]: float(shares[b]) for b in order if shares[b] >= 0.01}
        return Outlook(models, grids[TOTAL], branches, float(shares[-1]), source)


def _row(state: WorkflowState) -> StateRow:
    event = state.event
    expected = (expected_logs(event.expected), expected_logs(state.steps[0].expected))
    return row_of(state.steps, event, state.ended is None, *expected)

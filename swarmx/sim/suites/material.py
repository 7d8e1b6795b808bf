"""What suites are made from: a log's workflows, what was predicted for each call, and the engines that served them."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.logs.workflows import RecordedWorkflow, workflows_of
from swarmx.predict.baselines import fit_groups
from swarmx.predict.means import MEANS, out_of_fold_means
from swarmx.predict.split import folds, groups_of
from swarmx.predict.targets import remaining_tokens
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.sim import Arm
from swarmx.sim.arms import Oracle, Recorded
from swarmx.sim.cluster import Cluster
from swarmx.sim.replay import sim_workflows
from swarmx.sim.workload import SimWorkflow
from swarmx.types import CallRecord, Prediction

FOLDS = 5
MODEL = "model"  # every call of a log is served by the one pool under test


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that cells share, small enough to be sent to each process.

    workflows : with recorded arrivals; predictions : arm -> prediction per `SimCall.record_index`
    recorded, cluster : the log's own workflows and the engines fitted to its replicas; None when it names no replicas
    checksum : of the log and of the predictions
    """

    name: str
    workflows: tuple[SimWorkflow, ...]
    predictions: Mapping[str, tuple[Prediction | None, ...]]
    recorded: tuple[RecordedWorkflow, ...]
    cluster: Cluster | None
    checksum: str

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms that this material can feed, the default first."""
        return (*self.predictions, "oracle", "none")

    def arm(self, name: str | None) -> Arm | None:
        """The arm of that name; None and "none" predict nothing. Raises BadInput for a name it cannot feed."""
        if name is None or name == "none":
            return None
        if name == "oracle":
            return Oracle()
        if name not in self.predictions:
            raise BadInput(f"unknown arm {name!r}; this material has {', '.join(self.arms)}")
        return Recorded(self.predictions[name], name)


def material_of(
    name: str,
    records: Sequence[CallRecord],
    trained: Mapping[str, Prediction] | None,
    cluster: Cluster | None,
    means: bool = False,
) -> Material:
    """Material from a log.

    All workflows get one priority: the engines behind an immediate policy queue without classes, so a policy that
    holds back the low class would be judged by the very calls that it was asked to delay.

    trained : call id -> what a predictor says that has not seen the call's template; None leaves that arm out
    cluster : as `recorded_cluster` fits it
    means : also the arms that `psc` runs with, each a single number per call
    Raises BadInput when no workflow of the log ended well.
    """
    recorded = workflows_of(records)
    workflows, rows = sim_workflows(recorded, MODEL)
    predictions: dict[str, tuple[Prediction | None, ...]] = {}
    if trained is not None:
        predictions["trained"] = tuple(trained.get(row.call_id) for row in rows)
    predictions["type"] = type_predictions(rows)
    if means:
        predictions |= {kind: mean_predictions(rows, kind) for kind in MEANS}
    alike = tuple(replace(workflow, priority="normal") for workflow in workflows)
    return Material(name, alike, predictions, tuple(recorded), cluster, _checksum(rows, predictions))


def type_predictions(records: Sequence[CallRecord]) -> tuple[Prediction | None, ...]:
    """Quantiles of each call's type, length and what the workflow still holds, from templates of other folds."""
    tokens = np.array([record.output_tokens for record in records], dtype=np.float64)
    rest = remaining_tokens(records)
    types: list[Hashable] = [record.type for record in records]
    groups = groups_of(records)
    count = min(FOLDS, len(set(groups.tolist())))
    fold = folds(groups, count, seed=0) if count > 1 else np.zeros(len(records), np.int64)
    out: list[Prediction | None] = [None] * len(records)
    for k in range(count):
        mine = np.flatnonzero(fold == k)
        others = np.flatnonzero(fold != k) if count > 1 else mine
        keys, wanted = [types[i] for i in others], [types[i] for i in mine]
        lengths = fit_groups(keys, tokens[others]).values(wanted)
        rests = fit_groups(keys, rest[others]).values(wanted)
        for i, length, left in zip(mine, lengths, rests, strict=True):
            grid, later = QuantileGrid(LEVELS, length), QuantileGrid(LEVELS, left)
            out[i] = Prediction(grid, "per_type", remaining_tokens=later)
    return tuple(out)


def mean_predictions(records: Sequence[CallRecord], kind: str) -> tuple[Prediction | None, ...]:
    """Each call's expected length as a point, by a model of that kind and of other folds."""
    return tuple(Prediction(QuantileGrid.point(mean)) for mean in out_of_fold_means(records, kind))


def _checksum(rows: Sequence[CallRecord], predictions: Mapping[str, Sequence[Prediction | None]]) -> str:
    total = hashlib.sha256()
    for row in rows:
        total.update(f"{row.call_id} {row.arrival_s} {row.finished_s} {row.output_tokens}\n".encode())
    for arm, values in predictions.items():
        total.update(arm.encode())
        for value in values:
            total.update(b"-" if value is None else _rounded(value.tokens.values).tobytes())
    return total.hexdigest()[:16]


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.round(values, 6)

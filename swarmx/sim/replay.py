"""A log's work, once more: resampled at a wanted load, or exactly as it was to see how well the simulator fits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.logs.workflows import RecordedWorkflow
from swarmx.sim.cluster import Cluster, ReplicaSpec
from swarmx.sim.contracts import NO_DELAY, Timing
from swarmx.sim.loop import simulate
from swarmx.sim.results import CallTable, percentiles
from swarmx.sim.workload import SimCall, SimWorkflow, Workload
from swarmx.types import Call, CallRecord, Decision, Prediction, ReplicaState, Start


def sim_workflows(
    recorded: Sequence[RecordedWorkflow], model: str | None = None
) -> tuple[list[SimWorkflow], list[CallRecord]]:
    """(workflows to simulate, the records that `SimCall.record_index` counts), arrivals as recorded, from 0 on.

    model : name that every call's model is replaced by, for a log of one pool whose rows name several
    Calls without output are given one token: they took a prefill. Raises BadInput when the log holds no workflow.
    """
    if not recorded:
        raise BadInput("the log holds no workflow with a call that ended well; record or import one with status ok")
    start = min(w.arrival_s for w in recorded)
    records: list[CallRecord] = []
    out = []
    for workflow in recorded:
        places = {c.record.call_id: i for i, c in enumerate(workflow.calls)}
        calls = []
        for call in workflow.calls:
            parents = tuple(places[p] for p in call.parents)
            calls.append(_sim_call(call.record, parents, call.delay_s, len(records), model))
            records.append(call.record)
        out.append(
            SimWorkflow(workflow.id, workflow.arrival_s - start, tuple(calls), workflow.tenant, workflow.priority)
        )
    return sorted(out, key=lambda w: (w.arrival_s, w.id)), records


def _sim_call(record: CallRecord, parents: tuple[int, ...], delay_s: float, row: int, model: str | None) -> SimCall:
    return SimCall(
        record.call_id, float(max(record.output_tokens, 1)), parents, delay_s, record.type, model or record.model,
        record.prompt or "", record.prompt_tokens, record.max_tokens, record.prompt_group or "",
        cached_tokens=record.cached_tokens, record_index=row,
    )  # fmt: skip


def resample(workflows: Sequence[SimWorkflow], n: int, rng: np.random.Generator) -> list[SimWorkflow]:
    """n workflows drawn with replacement, with ids of their own; `kind` keeps the original's id."""
    picks = rng.integers(len(workflows), size=n)
    return [replace(workflows[p], id=f"{i}:{workflows[p].id}", kind=workflows[p].id) for i, p in enumerate(picks)]


class AsRecorded:
    """Sends every call to the replica that served it in the log."""

    tick_s = 1e9

    def __init__(self, replica_of: Mapping[str, str]) -> None:
        self.replica_of = replica_of

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> list[Decision]:
        return [Start(call.id, self.replica_of[call.id])]

    def predicted(self, call_id: str, prediction: Prediction, now: float) -> list[Decision]:
        return []

    def started(self, call_id: str, now: float) -> list[Decision]:
        return []

    def progress(self, call_id: str, tokens: float, now: float) -> list[Decision]:
        return []

    def finished(self, record: CallRecord, now: float, retry: bool = False) -> list[Decision]:
        return []

    def refused(self, call_id: str, state: ReplicaState, now: float) -> list[Decision]:
        raise RuntimeError(f"{state.id!r} refused {call_id!r} in a replay")

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> list[Decision]:
        return []

    def tick(self, now: float) -> list[Decision]:
        return []


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Recorded and simulated P50, P95, P99 in seconds of one quantity, and their ratio."""

    quantity: str
    n: int
    recorded_s: tuple[float, ...]
    simulated_s: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(s / r if r > 0 else float("nan") for s, r in zip(self.simulated_s, self.recorded_s, strict=True))


def fidelity(
    recorded: Sequence[RecordedWorkflow],
    cluster: Cluster,
    timing: Timing = NO_DELAY,
    *,
    arrivals: str = "recorded",
) -> tuple[list[Fidelity], CallTable]:
    """Replay a log on the same replicas and compare: call latency, time to first token, workflow latency.

    cluster : its replica ids are the log's
    arrivals : "recorded": every call is sent to its replica when it was, and what it waited before that is added as
        recorded; "graph": only workflows arrive when they did, later calls follow from their parents' simulated ends,
        so that errors add up along a workflow, and every call is sent at once
    Raises BadInput when a call names a replica that the cluster lacks, or none.
    """
    model = cluster.replicas[0].model
    workflows, records = sim_workflows(recorded, model)
    if arrivals == "recorded":
        workflows = _flat(workflows, records, min(w.arrival_s for w in recorded))
    elif arrivals != "graph":
        raise ValueError(f"unknown arrivals {arrivals!r}; choose recorded or graph")
    known = {r.id for r in cluster.replicas}
    replica_of: dict[str, str] = {}
    for workflow in workflows:
        for call in workflow.calls:
            replica = records[call.record_index].replica
            if replica not in known:
                raise BadInput(f"call {call.key!r} ran on replica {replica!r}; the cluster has {sorted(known)}")
            replica_of[f"{workflow.id}/{call.key}"] = replica
    workload = Workload(tuple(workflows))
    table = simulate(workload, cluster, AsRecorded(replica_of), None, timing)
    rows = [records[c.record_index] for c in workload.calls()]
    held = [_sent_s(r) - r.arrival_s if arrivals == "recorded" else 0.0 for r in rows]
    return _compare(rows, table, np.array(held)), table


def _sent_s(record: CallRecord) -> float:
    """When the call was sent to its replica; a router may have held it since it arrived."""
    return record.arrival_s if record.dispatched_s is None else record.dispatched_s


def _flat(workflows: Sequence[SimWorkflow], records: Sequence[CallRecord], start: float) -> list[SimWorkflow]:
    """Every call a workflow of its own, sent when the log says."""
    calls = [(_sent_s(records[c.record_index]) - start, w, c) for w in workflows for c in w.calls]
    calls.sort(key=lambda x: (x[0], x[2].record_index))
    return [
        SimWorkflow(f"{w.id}/{c.key}", max(t, 0.0), (replace(c, parents=(), delay_s=0.0),), w.tenant, w.priority)
        for t, w, c in calls
    ]


def _compare(rows: Sequence[CallRecord], table: CallTable, held_s: NDArray[np.float64]) -> list[Fidelity]:
    """held_s : (calls,) what each waited before it was sent, which the table does not hold"""

    def column(pick: str) -> NDArray[np.float64]:
        values = [getattr(r, pick) for r in rows]
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    arrival, first, finished = column("arrival_s"), column("first_token_s"), column("finished_s")
    arrived = table.arrival_s - held_s
    pairs = [
        ("call", finished - arrival, table.finished_s - arrived),
        ("first_token", first - arrival, table.first_token_s - arrived),
    ]
    names = np.array([r.workflow_id or r.call_id for r in rows])
    _, index = np.unique(names, return_inverse=True)
    count = int(index.max()) + 1 if index.size else 0

    def spans(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(low, index, start)
        np.maximum.at(high, index, end)
        span: NDArray[np.float64] = high - low
        return span

    if count < len(rows):
        pairs.append(("workflow", spans(arrival, finished), spans(arrived, table.finished_s)))
    out = []
    for name, real, simulated in pairs:
        both = np.isfinite(real) & np.isfinite(simulated)
        out.append(Fidelity(name, int(both.sum()), tuple(percentiles(real[both])), tuple(percentiles(simulated[both]))))
    return out


def specs_of(records: Sequence[CallRecord], template: Mapping[str, ReplicaSpec]) -> Cluster:
    """The replicas that a log names, each a copy of its device kind's template. Raises BadInput for an unknown kind."""
    devices = {r.replica: r.device or "default" for r in records if r.replica is not None}
    unknown = set(devices.values()) - set(template)
    if unknown or not devices:
        raise BadInput(f"no template for device kinds {sorted(unknown)}; the log names {sorted(set(devices.values()))}")
    return Cluster(tuple(replace(template[d], id=name, device=d) for name, d in sorted(devices.items())))

"""The usual world of a cell: the material's workflows, resampled, arriving at a load; and what "no queue" means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants
from swarmx.sim.arms import cut_tokens
from swarmx.sim.capacity import Capacity, at_load
from swarmx.sim.cluster import Cluster, ReplicaSpec
from swarmx.sim.replay import resample
from swarmx.sim.suites.cells import Cell, World
from swarmx.sim.suites.material import Material
from swarmx.sim.workload import SimCall, SimWorkflow, poisson

Array = NDArray[np.float64]
SLO_FACTOR = 3.0  # the latency limit: this many times the median without a queue of the same type


def call_alone_s(call: SimCall, replica: ReplicaSpec) -> float:
    """Seconds of the call when it has the replica to itself."""
    tokens, model = cut_tokens(call), replica.service
    if not replica.batched:
        return tokens * model.a / replica.speed
    kv = call.prompt_tokens + tokens / 2
    return float(tokens * model.tau(1.0, kv) + model.p * call.prompt_tokens) / replica.speed


def no_queue_s(workflow: SimWorkflow, cluster: Cluster) -> tuple[float, list[float]]:
    """Latency of the workflow, and of each call, when every call starts at once on the fastest replica, alone.

    No policy can do better; what a policy adds to it is queueing, sharing and slower replicas.
    """
    ends: list[float] = []
    calls: list[float] = []
    for call in workflow.calls:
        calls.append(min(call_alone_s(call, replica) for replica in cluster.replicas))
        released = max((ends[p] for p in call.parents), default=0.0)
        ends.append(released + call.delay_s + calls[-1])
    return max(ends), calls


def no_queue_p99_s(workflows: Sequence[SimWorkflow], cluster: Cluster) -> float:
    """P99 over the workflows of their latency without any queue."""
    return float(np.quantile([no_queue_s(w, cluster)[0] for w in workflows], 0.99))


def slo_limits(material: Material, drawn: Sequence[SimWorkflow], cluster: Cluster) -> tuple[Array, Array]:
    """Limits (workflows,) and (calls,): `SLO_FACTOR` times the no-queue median of the same type.

    A workflow's type is the type of its first call.
    """
    alone = {w.id: no_queue_s(w, cluster) for w in material.workflows}
    whole: dict[str | None, list[float]] = {}
    single: dict[str | None, list[float]] = {}
    for workflow in material.workflows:
        latency, calls = alone[workflow.id]
        whole.setdefault(workflow.calls[0].type, []).append(latency)
        for call, seconds in zip(workflow.calls, calls, strict=True):
            single.setdefault(call.type, []).append(seconds)
    of_workflow = {kind: SLO_FACTOR * float(np.median(found)) for kind, found in whole.items()}
    of_call = {kind: SLO_FACTOR * float(np.median(found)) for kind, found in single.items()}
    return (
        np.array([of_workflow[w.calls[0].type] for w in drawn]),
        np.array([of_call[c.type] for w in drawn for c in w.calls]),
    )


def resampled_world(
    material: Material, cell: Cell, cluster: Cluster, rate: Capacity, engines: dict[str, EngineConstants]
) -> World:
    """Workflows drawn with replacement, Poisson arrivals; a seed draws the same ones at every load and policy.

    All in one priority class: strict classes trade the tail of one for that of another, and most baselines know none.
    """
    drawn = [
        replace(w, priority="normal")
        for w in resample(material.workflows, cell.workflows, np.random.default_rng([cell.seed, 1]))
    ]
    workload = at_load(drawn, cell.load, rate, poisson, np.random.default_rng([cell.seed, 2]))
    slo_s, call_slo_s = slo_limits(material, drawn, cluster)
    return World(workload, cluster, material.arm(cell.arm), slo_s, call_slo_s, engines)

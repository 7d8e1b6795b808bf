"""A small execution log with a known truth: a synthetic workload served by simulated engines."""

from __future__ import annotations

from functools import cache

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.sim import Cluster, ReplicaSpec, simulate
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import poisson
from swarmx.types import CallRecord

KINDS = {"fast": EngineConstants(0.01, 0.002, 1e-6, 1e-4), "slow": EngineConstants(0.03, 0.006, 3e-6, 4e-4)}
DEVICES = ("fast", "slow")
SLOTS = 4


def engines() -> Cluster:
    return Cluster(
        tuple(
            ReplicaSpec(f"{device}-0", device=device, batched=True, slots=SLOTS, service=KINDS[device])
            for device in DEVICES
        )
    )


@cache
def made_log(workflows: int = 120, load: float = 0.6, seed: int = 0) -> tuple[CallRecord, ...]:
    """Records of one run; prompts tell the type, templates are three per type."""
    rng = np.random.default_rng(seed)
    drawn = mix(workflows, Sizes(mean_tokens=40, cv=1.0, prompt_tokens=60, tool_s=0.4), rng)
    cluster = engines()
    workload = at_load(drawn, load, capacity(cluster, drawn), poisson, rng)
    table = simulate(workload, cluster, preset("power_of_two"))
    records, row = [], 0
    for workflow in workload.workflows:
        first = row
        for call in workflow.calls:
            replica = cluster.replicas[table.replica[row]]
            template = int(rng.integers(3))
            parents = tuple(f"{workflow.id}/{workflow.calls[p].key}" for p in call.parents)
            last = max(call.parents, key=lambda p: table.finished_s[first + p], default=None)
            records.append(
                CallRecord(
                    f"{workflow.id}/{call.key}", "small", float(table.arrival_s[row]), "ok", workflow.id,
                    parent_id=None if last is None else f"{workflow.id}/{workflow.calls[last].key}", waits_for=parents,
                    workflow_arrival_s=workflow.arrival_s, type=call.type,
                    prompt=f"{call.type} please, the {'abc'[template]} way: {call.key}",
                    prompt_group=f"{call.type}/{template}", prompt_tokens=call.prompt_tokens, replica=replica.id,
                    device=replica.device, dispatched_s=float(table.dispatched_s[row]),
                    first_token_s=float(table.first_token_s[row]), finished_s=float(table.finished_s[row]),
                    output_tokens=max(round(float(table.output_tokens[row])), 1), running_at_dispatch=1,
                    waiting_at_dispatch=0,
                )
            )  # fmt: skip
            row += 1
    return tuple(records)

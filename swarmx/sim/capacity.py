"""What a cluster can do: the rate that a load of 1 stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from swarmx.errors import BadInput
from swarmx.sim.cluster import Cluster, ReplicaSpec
from swarmx.sim.job import Job
from swarmx.sim.replicas_batched import BatchedReplica
from swarmx.sim.workload import Gaps, SimCall, SimWorkflow, Workload, arriving
from swarmx.types import Call

SAMPLE_CALLS = 600  # per replica kind, or 30 per slot if that is more


@dataclass(frozen=True, slots=True)
class Capacity:
    """tokens_per_s : model -> output tokens a second that its replicas sustain with all slots or all KV memory in
    use, on this mix of calls and without any prefix-cache hit."""

    tokens_per_s: dict[str, float]

    def workflows_per_s(self, workflows: Sequence[SimWorkflow]) -> float:
        """Workflows a second at which the busiest model is offered exactly its capacity. Raises BadInput for a model
        that the capacity does not know."""
        tokens: dict[str, float] = {}
        for workflow in workflows:
            for call in workflow.calls:
                wanted = call.output_tokens if call.max_tokens is None else min(call.output_tokens, call.max_tokens)
                tokens[call.model] = tokens.get(call.model, 0.0) + wanted
        unknown = set(tokens) - set(self.tokens_per_s)
        if unknown:
            raise BadInput(f"no replica serves {sorted(unknown)}; the cluster has {sorted(self.tokens_per_s)}")
        return len(workflows) / max(total / self.tokens_per_s[model] for model, total in tokens.items())


def capacity(cluster: Cluster, workflows: Sequence[SimWorkflow], seed: int = 0) -> Capacity:
    """Sum over the cluster's replicas, faults and cold starts aside.

    One call at a time: slots · speed / a. Batched: the rate found by running each kind of replica on a full queue of
    calls drawn with replacement from the workload, until the queue is empty; tokens of unfinished calls count.
    """
    calls: dict[str, list[SimCall]] = {}
    for workflow in workflows:
        for call in workflow.calls:
            calls.setdefault(call.model, []).append(call)
    known: dict[ReplicaSpec, float] = {}
    rates: dict[str, float] = {}
    for spec in cluster.replicas:
        if spec.model not in calls:
            continue
        kind = replace(spec, id="", device="", told_speed=None, ready_s=0.0, start_if_free=False, queue="fcfs")
        if kind not in known:
            known[kind] = _rate(kind, calls[spec.model], np.random.default_rng(seed))
        rates[spec.model] = rates.get(spec.model, 0.0) + known[kind]
    return Capacity(rates)


def _rate(spec: ReplicaSpec, calls: Sequence[SimCall], rng: np.random.Generator) -> float:
    if not spec.batched:
        return spec.slots * spec.speed / spec.service.a
    replica = BatchedReplica(replace(spec, block_tokens=0), 0)
    drawn = [calls[i] for i in rng.integers(len(calls), size=max(SAMPLE_CALLS, 30 * spec.slots))]
    fitting = [c for c in drawn if c.prompt_tokens + 1 <= spec.longest_tokens]
    if not fitting:
        raise BadInput(f"no call fits into {spec.longest_tokens} tokens of {spec.model!r}; shorten prompts or add KV")
    for row, sim in enumerate(fitting):
        replica.submit(Job(Call(str(row), spec.model, 0.0, "", sim.prompt_tokens), sim, row, None, 0, None), 0.0)
    while replica.waiting_count and replica.due_s < inf:
        replica.wake(replica.due_s)
    end = max(replica.due_s, 1e-12)
    done = sum(j.produced for j in replica.ended)
    running = sum(tokens for _, tokens in replica.progress(replica.due_s))
    return (done + running) / end


def at_load(
    workflows: Sequence[SimWorkflow], load: float, rate: Capacity, gaps: Gaps, rng: np.random.Generator
) -> Workload:
    """The workflows, in this order, arriving so that the offered work is `load` times the capacity."""
    return arriving(workflows, load * rate.workflows_per_s(workflows), gaps, rng)

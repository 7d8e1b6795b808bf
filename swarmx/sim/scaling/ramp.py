"""The staged ramp on which llm-d published its law: 2 → 10 → 1 requests a second, 3 to 8 replicas, 100 s to start one.

Prompts of 4,000 and answers of 1,000 tokens at a constant rate per stage; limits of 3 s to the first token and 100 ms
per token. The engine's constants are not published; those here were searched for so that the KEDA law attains
95.8 ± 1 % at 5.93 ± 0.1 mean replicas, as published.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.scaling.profiles import Profiles, fit_profiles, windows_to
from swarmx.sim.cluster import Cluster, ReplicaSpec
from swarmx.sim.loop import simulate
from swarmx.sim.results import CallTable
from swarmx.sim.scaling.fleet import ColdStart, Kind
from swarmx.sim.scaling.latency import BatchedLatency
from swarmx.sim.scaling.scenario import Scenario
from swarmx.sim.scaling.watch import Limits
from swarmx.sim.workload import SimCall, SimWorkflow, Workload
from swarmx.types import CallRecord

STAGES = ((2.0, 330.0), (4.0, 360.0), (6.0, 360.0), (8.0, 360.0), (10.0, 360.0), (4.0, 360.0), (1.0, 300.0))
PROMPT, ANSWER = 4000, 1000
TTFT_S, TPOT_S = 3.0, 0.1
LIMITS = Limits(TTFT_S, TPOT_S)
SPEC = ReplicaSpec(
    "",
    batched=True,
    slots=256,
    service=EngineConstants(a=0.0298, b=0.0001, c=0.0, p=47e-6),
    kv_capacity_tokens=530_000,
)
MARGIN = 0.8  # share of the per-token limit at which a replica is planned


def staged(stages: tuple[tuple[float, float], ...], rng: np.random.Generator, cv: float = 0.2) -> Workload:
    """Calls at a constant rate per stage (requests a second, seconds); lengths gamma around the means."""
    times: list[float] = []
    start = 0.0
    for rate, seconds in stages:
        times += (start + np.arange(round(rate * seconds)) / rate).tolist()
        start += seconds
    shape = 1 / cv**2
    prompts = np.maximum(rng.gamma(shape, PROMPT / shape, len(times)).astype(int), 1)
    answers = np.maximum(rng.gamma(shape, ANSWER / shape, len(times)), 2.0)
    calls = (SimCall("c", float(a), type="chat", prompt_tokens=int(p)) for p, a in zip(prompts, answers, strict=True))
    return Workload(tuple(SimWorkflow(f"r{i}", t, (c,)) for i, (t, c) in enumerate(zip(times, calls, strict=True))))


def records_of(table: CallTable) -> list[CallRecord]:
    """The log of a run: what profiles are learned from. A call's start of service counts as its dispatch."""
    records = []
    row = 0
    for workflow in table.workload.workflows:
        ids = [f"{workflow.id}/{c.key}" for c in workflow.calls]
        ends = table.finished_s[row : row + len(ids)]
        for place, call in enumerate(workflow.calls):
            parent = ids[max(call.parents, key=ends.__getitem__)] if call.parents else None
            record = CallRecord(ids[place], call.model, float(table.arrival_s[row]), "ok", workflow.id, parent)
            dispatched, finished = float(table.started_s[row]), float(table.finished_s[row])
            records.append(replace(record, type=call.type, dispatched_s=dispatched, finished_s=finished))
            row += 1
    return records


@cache
def operating_point(template: ReplicaSpec, seed: int = 1) -> tuple[int, float, Profiles]:
    """(calls at once, calls a second, profiles) of one replica as near its limits as is planned for.

    Found by running it alone at rising rates; the last one at which 90 % of calls keep `MARGIN` of both limits.
    """
    best: tuple[int, float, Profiles] | None = None
    for rate in np.arange(0.5, 6.0, 0.1):
        workload = staged(((float(rate), 500.0),), np.random.default_rng(seed))
        table = simulate(workload, Cluster((replace(template, id="r"),)), preset("least_outstanding"))
        tpot = (table.finished_s - table.first_token_s) / np.maximum(table.output_tokens - 1, 1)
        late = table.arrival_s > 200.0
        kept = (tpot <= MARGIN * TPOT_S) & (table.ttft_s() <= MARGIN * TTFT_S)
        if kept[late].mean() < 0.9:
            break
        steady = float((table.finished_s - table.started_s)[late].mean())
        profiles = fit_profiles(records_of(table)[len(late) // 3 :], windows_to(150.0))
        best = max(int(rate * steady), 1), float(rate), profiles
    if best is None:
        raise ValueError(f"{template} keeps no limit at 0.5 calls a second")
    return best


def ramp(seed: int, template: ReplicaSpec = SPEC) -> Scenario:
    """The published episode; the seed draws lengths and start-up times."""
    slots, rate, profiles = operating_point(template)
    kind = Kind(template, ColdStart(100.0, 0.05), planned_slots=slots)
    workload = staged(STAGES, np.random.default_rng(seed))

    def seconds(call: SimCall) -> float:
        return call.output_tokens * slots / rate / ANSWER

    return Scenario(
        "ramp", workload, {("model", "default"): kind}, {"model": 3}, 3, 8, LIMITS, profiles, seconds,
        BatchedLatency(PROMPT, ANSWER), order=("least_outstanding", {}),
        token_s=slots / rate / ANSWER,
    )  # fmt: skip

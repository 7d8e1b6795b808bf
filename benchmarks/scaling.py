"""One scaling step, and what scalers cost at equal latency.

    python benchmarks/scaling.py [--quick] [--json]          swarmx bench scaling [--quick] [--json]

`step`: 50 models, 1,000 replicas, 10,000 live workflows of three calls each: from the book of live work to decisions,
with and without a budget that is too small. CPU milliseconds of one core, over repetitions.
`ramp`: llm-d's published episode; replica-seconds at the attainment of the KEDA law, interpolated on the frontier.
`agents`: agent runs in waves; replica-seconds at the workflow P95 of each rival, likewise, per ratio of cold start to
call duration.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from swarmx.scaler import Scaler
from swarmx.scaling import Bounds, PoolSample, ReplicaView, scaling_preset
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.sim.scaling.agents import agents
from swarmx.sim.scaling.frontier import cost_at, frontier
from swarmx.sim.scaling.ramp import ramp
from swarmx.types import CallRecord

MODELS, REPLICAS, WORKFLOWS, CALLS = 50, 1000, 10_000, 3
KNOBS: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "tail_demand": ({"level": 0.3}, {"level": 0.6}, {"level": 0.8}, {"level": 0.9}, {"level": 0.97}, {"level": 0.99}),
    "hpa": ({"target": 0.8}, {"target": 0.7}, {"target": 0.55}, {"target": 0.45}, {"target": 0.35}),
    "queue_length": ({"target": 1.5}, {"target": 1.0}, {"target": 0.75}, {"target": 0.5}, {"target": 0.35}),
}


def step_times(repeats: int, budget: float | None) -> dict[str, float]:
    """CPU milliseconds of one step: demand of all models, policy, bounds, budget, choice of replicas, receipts."""
    rng = np.random.default_rng(0)
    live = busy_book(rng)
    policy, _ = scaling_preset("tail_demand")
    scaler = Scaler("tail_demand", policy, Bounds(1, 200), budget=budget)
    times = []
    for repeat in range(repeats):
        samples = [pool_sample(f"m{m}", 5.0 * repeat, rng) for m in range(MODELS)]
        begun = time.process_time()
        demands = live.demands(1000.0)
        scaler.step([_with_demand(s, demands[s.pool]) for s in samples])
        times.append((time.process_time() - begun) * 1e3)
    low, middle, high = np.quantile(times[1:], [0.0, 0.5, 0.99])
    return {"min_ms": low, "median_ms": middle, "p99_ms": high, "repeats": repeats - 1, "live_calls": len(live)}


def busy_book(rng: np.random.Generator) -> LiveWork:
    """Live workflows over all models: each call type is followed by calls of two other models."""
    records = []
    for i in range(MODELS * 40):
        m, start = i % MODELS, float(rng.uniform(0, 100))
        lengths = rng.exponential(10.0, 3)
        for k in range(3):
            parent = None if k == 0 else f"{i}.0"
            begin = start if k == 0 else start + lengths[0]
            model = f"m{(m + 7 * k) % MODELS}"
            record = CallRecord(f"{i}.{k}", model, begin, "ok", str(i), parent, type=f"t{i % 4}", dispatched_s=begin,
                                finished_s=begin + float(lengths[k]))  # fmt: skip
            records.append(record)
    live = LiveWork(fit_profiles(records, windows_to(90.0)))
    for i in range(WORKFLOWS * CALLS):
        model, type_ = f"m{int(rng.integers(MODELS))}", f"t{int(rng.integers(4))}"
        at = float(rng.uniform(940, 1000))
        live.arrive(str(i), model, type_, at, is_first=i % CALLS == 0)
        if rng.random() < 0.7:
            live.started(str(i), at)
    return live


def pool_sample(pool: str, now: float, rng: np.random.Generator) -> PoolSample:
    views = tuple(
        ReplicaView(f"{pool}-{i}", in_flight=int(rng.integers(0, 40)), slots=32) for i in range(REPLICAS // MODELS)
    )
    return PoolSample(pool, now, views, 50.0, 500.0, 1e4 + now, 1e4 + now, 10.0, 0.5, 1e4, 1e4)


def _with_demand(sample: PoolSample, demand: Any) -> PoolSample:
    from dataclasses import replace

    return replace(sample, demand=demand)


def run(quick: bool = False) -> dict[str, Any]:
    """Everything above as one record."""
    out: dict[str, Any] = {
        "step": step_times(20 if quick else 100, None),
        "step_under_budget": step_times(20 if quick else 100, 500.0),
    }
    seeds = range(1 if quick else 3)
    out["ramp"] = _ramp(seeds)
    for call_s, cold_s in ((10.0, 60.0),) if quick else ((10.0, 60.0), (10.0, 120.0), (30.0, 30.0)):
        out[f"agents_cold_over_call_{cold_s / call_s:g}"] = _agents(call_s, cold_s, seeds)
    return out


def _ramp(seeds: range) -> dict[str, Any]:
    rows = frontier(ramp, {"keda_latency": ({},), "tail_demand": KNOBS["tail_demand"][:4]}, seeds)
    law = next(r for r in rows if r.policy == "keda_latency")
    ours = [r for r in rows if r.policy == "tail_demand"]
    cost = cost_at(ours, "attainment", law.attainment)
    return {
        "keda_latency": law.record(),
        "tail_demand": [r.record() for r in ours],
        "replica_seconds_ratio_at_equal_attainment": None if cost is None else cost / law.replica_seconds,
    }


def _agents(call_s: float, cold_s: float, seeds: range) -> dict[str, Any]:
    rows = frontier(lambda seed: agents(seed, call_s, cold_s), KNOBS, seeds)
    ours = [r for r in rows if r.policy == "tail_demand"]
    ratios = {}
    for row in rows:
        if row.policy != "tail_demand":
            cost = cost_at(ours, "p95_s", row.p95_s)
            name = f"{row.policy} {row.knob}"
            ratios[name] = None if cost is None else cost / row.replica_seconds
    return {"rows": [r.record() for r in rows], "replica_seconds_ratio_at_equal_p95": ratios}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.quick), indent=None if arguments.json else 2, default=float))

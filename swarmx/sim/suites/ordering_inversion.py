"""Priority inversion: short urgent calls behind long batch work, and an urgent run whose helper was labelled low."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.ordering import LaneOrder, Order
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.fcfs import Fcfs
from swarmx.preemption import Preemption
from swarmx.presets import preset
from swarmx.sim import CallTable, Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, percentiles
from swarmx.sim.arms import Oracle
from swarmx.sim.suites.ordering import Claim, Contest, Figures, Trial, no_limit, of_kind
from swarmx.types import Priority

ENGINE = EngineConstants(0.02, 0.0002, 1e-8, 3e-5)
URGENT_TOKENS, BATCH_TOKENS, SLOTS, REPLICAS = 50.0, 2000.0, 8, 2
FLOOR = 0.5  # share of all tokens that batch work is owed
POLICIES = ("no classes", "classes", "classes, preemption", "classes, preemption, floor", "urgent alone")
HELPERS = ("helpers, no inheritance", "helpers, inheritance")


def traffic(policy: str, load: float, seed: int, short: bool) -> Workload:
    """Batch calls offered at 1.5 times what the pool can do, urgent ones at `load` of it, both for the same time."""
    rng = np.random.default_rng([seed, 31])
    span = 400.0 if short else 2000.0
    rate = REPLICAS * SLOTS / float(ENGINE.tau(SLOTS, SLOTS * BATCH_TOKENS / 2))  # tokens a second
    flat = policy == "no classes"
    found = [
        SimWorkflow(f"u{i}", float(t), (SimCall("c", URGENT_TOKENS, prompt_tokens=100, type="urgent"),), "urgent",
                    "normal" if flat else "high", "urgent")
        for i, t in enumerate(np.sort(rng.uniform(60, span, rng.poisson(load * rate / URGENT_TOKENS * (span - 60)))))
    ]  # fmt: skip
    if policy != "urgent alone":
        lengths = BATCH_TOKENS * rng.lognormal(-0.045, 0.3, rng.poisson(1.5 * rate / BATCH_TOKENS * span))
        found += [
            SimWorkflow(f"b{i}", float(t), (SimCall("c", float(n), prompt_tokens=300, type="batch"),), "batch",
                        "normal" if flat else "low", "batch")
            for i, (t, n) in enumerate(zip(np.sort(rng.uniform(0, span, len(lengths))), lengths, strict=True))
        ]  # fmt: skip
    return Workload(tuple(sorted(found, key=lambda w: w.arrival_s)))


def build(policy: str, load: float, seed: int, short: bool) -> Trial:
    if policy in HELPERS:
        return helpers(policy, load, seed, short)
    workload = traffic(policy, load, seed, short)
    order: Order | LaneOrder = FairShare(floors={"batch": FLOOR}) if "floor" in policy else Fcfs()
    # a batch call may make way as often as it takes: what bounds its delay here is the floor
    preemption = Preemption(most=10**6) if "preemption" in policy else None
    scheduler = preset("late", seed, {"default": ENGINE}, order=order, preemption=preemption, aging=None)
    last = max((w.arrival_s for w in workload.workflows if w.kind == "urgent"), default=0.0)

    def measure(table: CallTable) -> Figures:
        urgent = of_kind(table, "urgent")
        latency = table.finished_s - table.arrival_s
        out = {"urgent_p99_s": percentiles(latency[urgent])[2], "urgent_p50_s": percentiles(latency[urgent])[0]}
        during = table.output_tokens * np.clip(
            (last - table.dispatched_s) / (table.finished_s - table.dispatched_s), 0, 1
        )
        total = float(during.sum())
        out["batch_share_over_floor"] = float(during[~urgent].sum()) / total / FLOOR
        out["starts_per_batch_call"] = float(table.attempts[~urgent].mean()) if (~urgent).any() else 0.0
        return out

    timing = Timing(progress_period_s=0.5)
    return Trial(workload, _pool(), scheduler, no_limit(workload), Oracle(), timing, measure)


def _pool() -> Cluster:
    spec = {"batched": True, "slots": SLOTS, "service": ENGINE, "kv_capacity_tokens": 200_000}
    return Cluster(tuple(ReplicaSpec(f"r{i}", **spec) for i in range(REPLICAS)))  # type: ignore[arg-type]


def helpers(policy: str, load: float, seed: int, short: bool) -> Trial:
    """Urgent runs plan, call a helper that is labelled low, and go on; normal work keeps every slot wanted."""
    rng = np.random.default_rng([seed, 32])
    span = 400.0 if short else 2000.0
    rate = REPLICAS * SLOTS / float(ENGINE.tau(SLOTS, SLOTS * 300.0))
    count = max(int(load * rate * span / 150), 5)
    low: Priority = "low"
    found = [
        SimWorkflow(
            f"h{i}", float(t),
            (SimCall("plan", 50.0), SimCall("helper", 50.0, (0,), priority=low), SimCall("merge", 50.0, (1,))),
            "urgent", "high", "urgent",
        )
        for i, t in enumerate(rng.uniform(20, span, count))
    ]  # fmt: skip
    calls = int(1.1 * rate * span / 500)
    found += [
        SimWorkflow(f"n{i}", float(t), (SimCall("c", float(rng.exponential(500) + 1)),), "normal", "normal", "normal")
        for i, t in enumerate(rng.uniform(0, span, calls))
    ]
    workload = Workload(tuple(sorted(found, key=lambda w: w.arrival_s)))
    scheduler = preset(
        "late", seed, {"default": ENGINE}, order="fcfs", aging=None, preemption=Preemption(most=10**6),
        inherits=policy == "helpers, inheritance",
    )  # fmt: skip

    def measure(table: CallTable) -> Figures:
        kinds = np.array([w.kind == "urgent" for w in workload.workflows])
        latency = table.workflow_latency_s()
        return {"urgent_p99_s": percentiles(latency[kinds])[2], "urgent_p50_s": percentiles(latency[kinds])[0]}

    return Trial(workload, _pool(), scheduler, no_limit(workload), Oracle(), Timing(progress_period_s=0.5), measure)


SUITE = Contest(
    "ordering_inversion",
    "50-token urgent calls behind 2,000-token batch work; urgent runs whose helper calls are labelled low",
    (*POLICIES, *HELPERS),
    (0.05, 0.2),
    build,
    shown=(
        Claim(
            "urgent P99 over the same alone",
            "target 1.2",
            "urgent_p99_s",
            "classes, preemption, floor",
            0.05,
            "urgent alone",
        ),
        Claim("the same without preemption", "", "urgent_p99_s", "classes", 0.05, "urgent alone"),
        Claim(
            "batch work's share over its floor",
            "target >= 1",
            "batch_share_over_floor",
            "classes, preemption, floor",
            0.05,
        ),
        Claim(
            "P99 of urgent runs with a helper labelled low, without over with inheritance",
            "",
            "urgent_p99_s",
            "helpers, no inheritance",
            0.05,
            "helpers, inheritance",
        ),
    ),
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, float]:
    """Urgent P99 over the same calls alone, what batch keeps of its floor, and what inheritance is worth."""
    load, best = 0.05, "classes, preemption, floor"
    return {
        "urgent_p99_over_empty": SUITE.ratio("urgent_p99_s", best, "urgent alone", load, seeds, short),
        "urgent_p99_over_empty_without_preemption": SUITE.ratio(
            "urgent_p99_s", "classes", "urgent alone", load, seeds, short
        ),
        "batch_share_over_floor": SUITE.figures(best, load, seeds, short)["batch_share_over_floor"],
        "urgent_run_p99_without_over_with_inheritance": SUITE.ratio(
            "urgent_p99_s", HELPERS[0], HELPERS[1], load, seeds, short
        ),
    }

"""The bounds of AIOS's proposal: shares by weight in saturation, and a dispatch bound for the lowest class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.fairness import jain
from swarmx.ordering import LaneOrder, Order
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.priority import Priority
from swarmx.ordering.round_robin import RoundRobin
from swarmx.ordering.vtc import Vtc
from swarmx.presets import preset
from swarmx.sim import CallTable, Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload
from swarmx.sim.arms import Oracle
from swarmx.sim.suites.ordering import Claim, Contest, Figures, Trial, no_limit
from swarmx.types import PRIORITIES

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}
POLICIES = (
    "fcfs",
    "round_robin",
    "fair_share, calls",
    "fair_share, tokens",
    "vtc",
    "priority, aging",
    "priority, no aging",
)
HOLD_S = (30.0, 60.0, 120.0)
SLOTS = 4


def orders(policy: str) -> Order | LaneOrder:
    known: dict[str, Order | LaneOrder] = {
        "fcfs": Fcfs(),
        "round_robin": RoundRobin("tenant"),
        "fair_share, calls": FairShare(WEIGHTS, charge="calls"),
        "fair_share, tokens": FairShare(WEIGHTS),
        "vtc": Vtc(weights=WEIGHTS),
        "priority, aging": Priority(hold_s=HOLD_S),
        "priority, no aging": Priority(hold_s=(np.inf, np.inf, np.inf)),
    }
    return known[policy]


def saturated(seed: int, calls: int) -> Workload:
    """Three tenants whose calls are all there from the beginning, in random order."""
    rng = np.random.default_rng([seed, 41])
    names = rng.permutation(np.repeat(list(WEIGHTS), calls))
    return Workload(
        tuple(
            SimWorkflow(f"w{i}", 0.0, (SimCall("c", float(rng.exponential(20) + 1), prompt_tokens=10),), str(name))
            for i, name in enumerate(names)
        )
    )


def classes(seed: int, calls: int, load: float) -> Workload:
    """Single calls of the three classes, together more than the slots can do."""
    rng = np.random.default_rng([seed, 42])
    times = np.cumsum(rng.exponential(10 / (SLOTS * load), 3 * calls))
    return Workload(
        tuple(
            SimWorkflow(f"w{i}", float(t), (SimCall("c", float(rng.exponential(9) + 1)),), "t", PRIORITIES[int(level)])
            for i, (t, level) in enumerate(zip(times, rng.choice(3, 3 * calls, p=(0.6, 0.3, 0.1)), strict=True))
        )
    )


def build(policy: str, load: float, seed: int, short: bool) -> Trial:
    calls = 300 if short else 1500
    by_class = policy.startswith("priority")
    workload = classes(seed, calls, load) if by_class else saturated(seed, calls)
    scheduler = preset("central_fcfs", seed, {"default": EngineConstants(1.0)}, order=orders(policy), tier="neural")

    def shares(table: CallTable) -> Figures:
        tenant = np.array([w.tenant for w in workload.workflows])
        until = min(float(table.dispatched_s[tenant == name].max()) for name in WEIGHTS)
        work = table.output_tokens + 10
        part = np.clip((until - table.dispatched_s) / (table.finished_s - table.dispatched_s), 0, 1) * work
        per_weight = [float(part[tenant == name].sum()) / weight for name, weight in WEIGHTS.items()]
        return {"jain": jain(per_weight)}

    def bounds(table: CallTable) -> Figures:
        level = np.array([PRIORITIES.index(w.priority) for w in workload.workflows])
        wait = table.dispatched_s - table.arrival_s
        start, due = table.dispatched_s, table.arrival_s + np.array(HOLD_S)[level]
        # a tick of at most 1 s lies between coming due and being seen to be due
        broken = sum(
            int(np.sum((start > due[i] + 1.0) & (start < start[i]) & (due > due[i] + 1.0)))
            for i in np.flatnonzero(start > due + 1.0)
        )  # starts, after it was due, of calls that came due later
        return {
            "bound_broken": float(broken),
            "worst_low_wait_s": float(wait[level == 2].max()),
            "high_p99_wait_s": float(np.quantile(wait[level == 0], 0.99)),
        }

    return Trial(
        workload, Cluster(tuple(ReplicaSpec(f"r{i}") for i in range(SLOTS))), scheduler, no_limit(workload), Oracle(),
        Timing(), bounds if by_class else shares,
    )  # fmt: skip


SUITE = Contest(
    "ordering_aios",
    "shares of tenants with weights 1:2:4 in saturation; how long the lowest class waits in overload",
    POLICIES,
    (1.1,),
    build,
    {"jain_at_least": 0.99},
    shown=(
        Claim("Jain's index for weights 1:2:4", "paper >= 0.99", "jain", "fair_share, tokens", 1.1),
        Claim("starts before one that came due earlier", "claimed 0", "bound_broken", "priority, aging", 1.1),
    ),
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, float]:
    """Jain's index for weights 1:2:4, and violations of the dispatch bound."""
    aged = SUITE.figures("priority, aging", 1.1, seeds, short)
    plain = SUITE.figures("priority, no aging", 1.1, seeds, short)
    return {
        "jain_124": min(SUITE.figures("fair_share, tokens", 1.1, (seed,), short)["jain"] for seed in seeds),
        "jain_124_fcfs": SUITE.figures("fcfs", 1.1, seeds, short)["jain"],
        "bound_broken": aged["bound_broken"],
        "worst_low_wait_s": aged["worst_low_wait_s"],
        "worst_low_wait_s_without_aging": plain["worst_low_wait_s"],
    }

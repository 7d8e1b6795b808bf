"""Giant workflows beside small ones: what each discipline gives to either, and what bounds the small ones' wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.ordering import Aging, LaneOrder, Order
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.justitia import Justitia
from swarmx.ordering.las import Las
from swarmx.ordering.oldest_workflow import OldestWorkflow
from swarmx.ordering.vtc import Vtc
from swarmx.presets import preset
from swarmx.sim import CallTable, ReplicaSpec, Workload, cluster, het_speeds, percentiles
from swarmx.sim.arms import Calibrated, remaining_tokens
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.suites.ordering import Contest, Figures, Trial, no_limit
from swarmx.sim.synthetic import Sizes, giants
from swarmx.sim.workload import poisson

POLICIES = (
    "led", "fcfs", "oldest, c = 0", "oldest, c = 0.25", "oldest, c = 1", "justitia", "fair_share", "vtc", "las",
)  # fmt: skip
TENANTS = 10  # giants belong to the first, small workflows to the others


def _order(policy: str, rate: float) -> Order | LaneOrder:
    known: dict[str, Order | LaneOrder] = {
        "fcfs": Fcfs(), "oldest, c = 0": OldestWorkflow(0.0), "oldest, c = 0.25": OldestWorkflow(0.25),
        "oldest, c = 1": OldestWorkflow(1.0), "justitia": Justitia(rate, "vtc"), "fair_share": FairShare(charge="work"),
        "vtc": Vtc(), "las": Las(),
    }  # fmt: skip
    return known[policy]


def build(policy: str, load: float, seed: int, short: bool) -> Trial:
    rng = np.random.default_rng([seed, 61])
    sizes = Sizes(prompt_tokens=0.0)
    found = giants(250 if short else 1500, sizes, rng, width=60.0 if short else 100.0)
    found = [
        replace(w, tenant="giant" if w.id.startswith("g") else f"t{i % (TENANTS - 1)}") for i, w in enumerate(found)
    ]
    spec = ReplicaSpec("r", service=EngineConstants(0.02))
    replicas = cluster(spec, het_speeds())
    rate = capacity(replicas, found)
    workload: Workload = at_load(found, load, rate, poisson, np.random.default_rng([seed, 62]))
    engines = {r.device: EngineConstants(r.service.a / r.speed) for r in replicas.replicas}
    if policy == "led":
        scheduler = preset("least_outstanding_per_speed", seed, engines)
    else:
        per_s = 2 * rate.tokens_per_s["model"]  # cost p + 2d, without prompts
        scheduler = preset("late", seed, engines, order=_order(policy, per_s), aging=Aging())

    def measure(table: CallTable) -> Figures:
        giant = np.array([w.tenant == "giant" for w in workload.workflows])
        latency = table.workflow_latency_s()
        alone = np.array([0.02 * (remaining_tokens(w, 0) + w.calls[0].output_tokens) for w in workload.workflows])
        return {
            "small_p99_s": percentiles(latency[~giant])[2],
            "small_slowdown": float(np.mean(latency[~giant] / alone[~giant])),
            "giant_median_s": float(np.median(latency[giant])) if giant.any() else 1.0,
        }

    return Trial(workload, replicas, scheduler, no_limit(workload), Calibrated(found), measure=measure)


SUITE = Contest(
    "ordering_giants",
    "1.5 % of workflows have a hundred calls or more: workflow P99, small workflows, and the giants themselves",
    POLICIES,
    (0.7, 0.85),
    build,
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, float]:
    """Against LED and against first come first served under the same binding, load 0.85."""
    load = 0.85
    return {
        "p99_oldest_vs_led": SUITE.ratio("p99_s", "oldest, c = 0.25", "led", load, seeds, short),
        "p99_oldest_vs_fcfs": SUITE.ratio("p99_s", "oldest, c = 0.25", "fcfs", load, seeds, short),
        "small_p99_oldest_vs_led": SUITE.ratio("small_p99_s", "oldest, c = 0.25", "led", load, seeds, short),
        "small_p99_fair_share_vs_led": SUITE.ratio("small_p99_s", "fair_share", "led", load, seeds, short),
        "giant_median_fair_share_vs_oldest": SUITE.ratio(
            "giant_median_s", "fair_share", "oldest, c = 0.25", load, seeds, short
        ),
    }

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
from swarmx.sim.suites.ordering import Claim, Contest, Figures, Trial, no_limit
from swarmx.sim.synthetic import Sizes, giants
from swarmx.sim.workload import poisson

POLICIES = (
    "led", "fcfs", "oldest, c = 0", "oldest, c = 0.25", "oldest, no tenant bound", "oldest, c = 1", "justitia",
    "fair_share", "vtc", "las",
)  # fmt: skip
TENANTS = 10  # giants belong to the first, small workflows to the others


def _order(policy: str) -> Order | LaneOrder:
    known: dict[str, Order | LaneOrder] = {
        "fcfs": Fcfs(), "oldest, c = 0": OldestWorkflow(0.0), "oldest, c = 0.25": OldestWorkflow(0.25),
        "oldest, c = 1": OldestWorkflow(1.0), "oldest, no tenant bound": OldestWorkflow(0.25),
        "justitia": Justitia(cost="vtc"), "fair_share": FairShare(charge="work"),
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
        aging = Aging(tenant_services=np.inf) if policy == "oldest, no tenant bound" else Aging()
        scheduler = preset("late", seed, engines, order=_order(policy), aging=aging)

    def measure(table: CallTable) -> Figures:
        giant = np.array([w.tenant == "giant" for w in workload.workflows])
        latency = table.workflow_latency_s()
        alone = np.array([0.02 * (remaining_tokens(w, 0) + w.calls[0].output_tokens) for w in workload.workflows])
        return {
            "small_p99_s": percentiles(latency[~giant])[2],
            "small_slowdown": float(np.mean(latency[~giant] / alone[~giant])),
            "giant_median_s": float(np.median(latency[giant])) if giant.any() else 1.0,
            **shut_out(table),
        }

    return Trial(workload, replicas, scheduler, no_limit(workload), Calibrated(found), measure=measure)


def shut_out(table: CallTable) -> Figures:
    """Longest time of a small tenant with calls waiting and without a start, and that time over its bound.

    The bound: `Aging.tenant_services` mean service times, and as many longest calls as there are tenants, and one more.
    """
    tenant = np.array([w.tenant for w in table.workload.workflows])[table.workflow]
    service = table.finished_s - table.dispatched_s
    worst = 0.0
    for name in np.unique(tenant[tenant != "giant"]):
        rows = np.flatnonzero(tenant == name)
        waits, starts = np.sort(table.arrival_s[rows]), np.sort(table.dispatched_s[rows])
        since = np.maximum(waits, np.concatenate([[0.0], starts[:-1]]))  # of the i-th start: the later of the two
        worst = max(worst, float(np.max(starts - since)))
    bound = Aging().tenant_services * float(service.mean()) + (TENANTS + 1) * float(service.max())
    return {"worst_shut_out_s": worst, "worst_shut_out_over_bound": worst / bound}


SUITE = Contest(
    "ordering_giants",
    "1.5 % of workflows have a hundred calls or more: workflow P99, small workflows, and the giants themselves",
    POLICIES,
    (0.7, 0.85),
    build,
    shown=(
        Claim("workflow P99 of oldest first over LED", "", "p99_s", "oldest, c = 0.25", 0.85, "led"),
        Claim(
            "small tenants' longest time without a start over its bound",
            "claimed <= 1",
            "worst_shut_out_over_bound",
            "oldest, c = 0.25",
            0.85,
        ),
        Claim(
            "that time over the same without the bound",
            "",
            "worst_shut_out_s",
            "oldest, c = 0.25",
            0.85,
            "oldest, no tenant bound",
        ),
        Claim("P99 over the same without the bound", "", "p99_s", "oldest, c = 0.25", 0.85, "oldest, no tenant bound"),
    ),
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, float]:
    """Against LED and against first come first served under the same binding, load 0.85."""
    load = 0.85
    return {
        "p99_oldest_vs_led": SUITE.ratio("p99_s", "oldest, c = 0.25", "led", load, seeds, short),
        "p99_oldest_vs_fcfs": SUITE.ratio("p99_s", "oldest, c = 0.25", "fcfs", load, seeds, short),
        "p99_oldest_vs_oldest_without_tenant_bound": SUITE.ratio(
            "p99_s", "oldest, c = 0.25", "oldest, no tenant bound", load, seeds, short
        ),
        "worst_shut_out_s": SUITE.figures("oldest, c = 0.25", load, seeds, short)["worst_shut_out_s"],
        "worst_shut_out_s_without_tenant_bound": SUITE.figures("oldest, no tenant bound", load, seeds, short)[
            "worst_shut_out_s"
        ],
        "worst_shut_out_over_bound": SUITE.figures("oldest, c = 0.25", load, seeds, short)["worst_shut_out_over_bound"],
        "small_p99_oldest_vs_led": SUITE.ratio("small_p99_s", "oldest, c = 0.25", "led", load, seeds, short),
        "small_p99_fair_share_vs_led": SUITE.ratio("small_p99_s", "fair_share", "led", load, seeds, short),
        "giant_median_fair_share_vs_oldest": SUITE.ratio(
            "giant_median_s", "fair_share", "oldest, c = 0.25", load, seeds, short
        ),
    }

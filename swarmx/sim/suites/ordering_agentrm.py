"""AgentRM's claims: hung turns that hold their lane, long turns before short ones, a provider that says 429."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swarmx.admission import Admission
from swarmx.engine import EngineConstants
from swarmx.ordering import LaneOrder, Order
from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.mlfq import Mlfq
from swarmx.pacing import Pacing
from swarmx.presets import preset
from swarmx.sim import CallTable, Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, percentiles
from swarmx.sim.suites.ordering import Claim, Contest, Figures, Trial, no_limit
from swarmx.sim.workload import poisson

LANES, STALL_S, PROGRESS_S = 8, 15.0, 3.0
HUNG_S = 3000.0  # what a hung turn would take if nobody looked
LIMIT, BURST, ROUND_TRIP_S = 1.02, 4.0, 0.1  # what the provider takes, over the mean rate of turns
LIMITED = ("limited", "limited, back-off", "limited, paced")
POLICIES = ("fcfs", "fcfs, reaping", "mlfq", "mlfq, reaping", *LIMITED)


def turns(load: float, seed: int, short: bool, hung_share: float = 0.03) -> Workload:
    """Agents of 1 to 12 turns of 1 to 60 s; some of the turns never answer."""
    rng = np.random.default_rng([seed, 51])
    flows, work = [], 0.0
    for i in range(150 if short else 800):
        heavy = rng.random() < 0.15
        calls: list[SimCall] = []
        for k in range(int(rng.integers(5, 13)) if heavy else int(rng.integers(1, 4))):
            hung = rng.random() < hung_share
            seconds = float(np.clip(rng.exponential(25.0 if heavy else 4.0), 1, 60))
            work += seconds
            calls.append(
                SimCall(
                    f"t{k}", HUNG_S if hung else seconds, (k - 1,) if k else (), 1.0 if k else 0.0, "turn", stuck=hung
                )
            )
        flows.append(SimWorkflow(f"a{i}", 0.0, tuple(calls), kind="heavy" if heavy else "light"))
    gaps = poisson(len(flows), rng)
    times = np.cumsum(gaps) * work / (LANES * load) / gaps.sum()
    return Workload(
        tuple(
            SimWorkflow(w.id, float(t), w.calls, kind=w.kind)
            for w, t in zip((flows[i] for i in rng.permutation(len(flows))), times, strict=True)
        )
    )


def build(policy: str, load: float, seed: int, short: bool) -> Trial:
    if policy in LIMITED:
        return limited(policy, load, seed, short)
    workload = turns(load, seed, short)
    order: Order | LaneOrder = Mlfq() if policy.startswith("mlfq") else Fcfs()
    admission = Admission(stall_s=STALL_S, retries=0) if "reaping" in policy else Admission()
    scheduler = preset("central_fcfs", seed, {"default": EngineConstants(1.0)}, order=order, admission=admission)
    hung = np.array([c.stuck for c in workload.calls()])

    def measure(table: CallTable) -> Figures:
        held = np.where(np.isnan(table.dispatched_s), 0.0, table.finished_s - table.dispatched_s)
        turn = table.finished_s - table.arrival_s
        good = table.ok & ~hung
        span = float(np.nanmax(table.finished_s[~hung])) - table.workflow_arrival_s[0]
        return {
            "hung_calls_left": float((hung & (held > STALL_S + 2 * PROGRESS_S)).sum()),
            "killed_by_mistake": float((~hung & ~table.ok & ~np.isnan(table.dispatched_s)).sum()),
            "lane_waste": float(held[hung].sum() / (LANES * span)),
            "turn_p50_s": percentiles(turn[good])[0],
            "turn_p95_s": percentiles(turn[good])[1],
            "turns_per_s": float(good.sum()) / span,
        }

    lanes = Cluster(tuple(ReplicaSpec(f"lane{i}") for i in range(LANES)))
    return Trial(workload, lanes, scheduler, no_limit(workload), None, Timing(progress_period_s=PROGRESS_S), measure)


def limited(policy: str, load: float, seed: int, short: bool) -> Trial:
    """The same turns, none hung, on a hosted model that takes so many calls a second and refuses the others."""
    workload = turns(load, seed, short, hung_share=0.0)
    rate = LIMIT * workload.call_count / workload.workflows[-1].arrival_s
    pacing = {"limited": None, "limited, back-off": Pacing(), "limited, paced": Pacing(rate, BURST)}[policy]
    engines = {"default": EngineConstants(1.0)}
    scheduler = preset("central_fcfs", seed, engines, order=Mlfq(), pacing=pacing)
    provider = ReplicaSpec("provider", slots=2 * LANES, accepts_per_s=rate, accepts_burst=BURST)

    def measure(table: CallTable) -> Figures:
        turn = table.finished_s - table.arrival_s
        return {
            "refusals_per_turn": float(table.attempts.mean()) - 1.0,
            "worst_refusals": float(table.attempts.max()) - 1.0,
            "turn_mean_s": float(turn.mean()),
        }

    timing = Timing(network_s=ROUND_TRIP_S / 2)
    return Trial(workload, Cluster((provider,)), scheduler, no_limit(workload), None, timing, measure)


SUITE = Contest(
    "ordering_agentrm",
    "agent turns on 8 lanes, 3 % hang: feedback queue and reaping against first come first served; and turns on a "
    "hosted model that refuses calls beyond its limit",
    POLICIES,
    (0.6, 0.8),
    build,
    {"turn_p95_ratio": 0.14, "lane_waste_ratio": 0.04, "throughput_ratio": 2.68, "hung_calls_left": 0.0},
    shown=(
        Claim("hung turns left", "paper 0", "hung_calls_left", "mlfq, reaping", 0.6),
        Claim("turn P95 over first come first served", "paper 0.14", "turn_p95_s", "mlfq, reaping", 0.6, "fcfs"),
        Claim("lane waste over first come first served", "paper 0.04", "lane_waste", "mlfq, reaping", 0.6, "fcfs"),
        Claim("throughput over first come first served", "paper 2.68", "turns_per_s", "mlfq, reaping", 0.6, "fcfs"),
        Claim(
            "refusals per turn on a limited model, limit not known", "", "refusals_per_turn", "limited, back-off", 0.8
        ),
        Claim("the same without back-off", "", "refusals_per_turn", "limited", 0.8),
    ),
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, float]:
    """Against first come first served without reaping, load 0.6; refusals of the limited provider at load 0.8."""
    load, best = 0.6, "mlfq, reaping"
    storm = {name: SUITE.figures(name, 0.8, seeds, short) for name in LIMITED}
    return {
        "killed_by_mistake": SUITE.figures(best, load, seeds, short)["killed_by_mistake"],
        "refusals_per_turn": storm["limited, back-off"]["refusals_per_turn"],
        "refusals_per_turn_limit_known": storm["limited, paced"]["refusals_per_turn"],
        "refusals_per_turn_unpaced": storm["limited"]["refusals_per_turn"],
        "turn_mean_over_unpaced": storm["limited, back-off"]["turn_mean_s"] / storm["limited"]["turn_mean_s"],
        "hung_calls_left": SUITE.figures(best, load, seeds, short)["hung_calls_left"],
        "hung_calls_left_without_reaping": SUITE.figures("fcfs", load, seeds, short)["hung_calls_left"],
        "turn_p95_ratio": SUITE.ratio("turn_p95_s", best, "fcfs", load, seeds, short),
        "lane_waste_ratio": SUITE.ratio("lane_waste", best, "fcfs", load, seeds, short),
        "throughput_ratio": SUITE.ratio("turns_per_s", best, "fcfs", load, seeds, short),
    }

"""Scalers side by side: the same arrivals, replicas that take time to start; latency, and the replicas it took.

Beside every policy as it comes, the policies of `CURVES` run with their knob turned, so that costs can be compared at
equal latency (`equal_cost`) and drawn as a frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from swarmx.scaling import SCALERS
from swarmx.sim.results import percentiles
from swarmx.sim.scaling.agents import no_queue_s
from swarmx.sim.scaling.scenario import ScalingRun, Scenario, run
from swarmx.sim.suites.cells import POLICIES, QUICK, Cell, Plan
from swarmx.sim.suites.equal_cost import OURS, family
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import CURVE, Outcome, critical_parts
from swarmx.sim.suites.scaling_regimes import Build, bursts, days, kinds, mixes, phases, ramps
from swarmx.sim.suites.worlds import SLO_FACTOR

ARMS = {"tail_demand": "type", "swarmx": "type", "clairvoyant": "oracle"}
ALWAYS = ("hpa", "queue_length", "keda_latency", "tail_demand", "clairvoyant")
QUICK_POLICIES = (*ALWAYS, "kpa", "murakkab")  # what a quick run holds unless others are named
QUICK_SPAN_S, SPAN_S = 1500.0, 7200.0
Knob = Mapping[str, float]
# cheap settings first; a `fill` above 1 plans more calls than there are slots, which is cheaper than any level
CURVES: Mapping[str, tuple[Knob, ...]] = {
    "tail_demand": (
        {"level": 0.3, "fill": 2.0}, {"level": 0.3, "fill": 1.4}, {"level": 0.3}, {"level": 0.8}, {"level": 0.9},
        {"level": 0.97}, {"level": 0.99},
    ),
    "hpa": ({"target": 0.85}, {"target": 0.5}),
    "queue_length": ({"target": 1.5}, {"target": 0.6}),
    "keda_latency": ({"up": 0.8, "down": 0.6},),
}  # fmt: skip
QUICK_CURVES: Mapping[str, tuple[Knob, ...]] = {
    "tail_demand": ({"level": 0.3, "fill": 2.0}, {"level": 0.3}, {"level": 0.8}, {"level": 0.99}),
}


@dataclass(frozen=True, slots=True)
class Scaling:
    """One suite.

    regimes : name -> scenario; the seed draws arrivals, lengths and start-up times
    arms : forecasts that `tail_demand` runs with as well in a full run, see `Scenario.forecasts`, and in which regimes
    """

    name: str
    about: str
    regimes: Callable[[], Mapping[str, Build]]
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs_log: bool = False

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        quick = plan.workflows <= QUICK.workflows
        wanted = [p for p in SCALERS if p in plan.policies or p in ALWAYS]
        if set(POLICIES) <= set(plan.policies):
            wanted = [p for p in SCALERS if p in QUICK_POLICIES or not quick]
        curves = QUICK_CURVES if quick else CURVES
        turned = [turned_name(p, knob) for p in wanted for knob in curves.get(p, ())]
        return [
            Cell(self.name, self.name, regime, 1.0, policy, arm, seed, plan.workflows)
            for regime in self.regimes()
            for policy in (*wanted, *turned)
            for arm in (ARMS.get(family(policy)), *(() if quick or policy != OURS else self.arms.get(regime, ())))
            for seed in plan.seeds
        ]

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        span_s = QUICK_SPAN_S if cell.workflows <= QUICK.workflows else SPAN_S
        scenario = self.regimes()[cell.regime](cell.seed, span_s)
        found = run(scenario, family(cell.policy), options=options_of(cell.policy), arm=cell.arm, seed=cell.seed)
        return outcome_of(found, scenario)

    def settings(self, material: Material) -> Mapping[str, float]:
        return {"workflow_slo_over_no_queue_median": SLO_FACTOR}


def turned_name(policy: str, knob: Knob) -> str:
    """Name of the row of a policy with its knob turned."""
    return f"{policy}({', '.join(f'{k}={v:g}' for k, v in knob.items())})"


def options_of(row: str) -> dict[str, float]:
    """The options of a row, none where the policy is as it comes."""
    inside = row.partition("(")[2].rstrip(")")
    return {k: float(v) for k, _, v in (part.partition("=") for part in inside.split(", ") if part)}


def outcome_of(found: ScalingRun, scenario: Scenario) -> Outcome:
    """Reduce a run. A call's SLO are the scenario's limits; a workflow's is 3x the median without a queue."""
    whole, calls = found.table.workflow_latency_s(), found.table.call_latency_s()
    limit = SLO_FACTOR * float(np.median(no_queue_s(scenario.workload, scenario.seconds)))
    return Outcome(
        call=(float(calls.size), *percentiles(calls), found.attainment),
        workflow=(float(whole.size), *percentiles(whole), float(np.mean(whole <= limit))),
        ttft_p99_s=percentiles(found.table.ttft_s())[2],
        replica_seconds=found.replica_seconds,
        replicas=found.mean_replicas,
        no_end=int((~found.table.ok).sum()),
        curve_s=tuple(percentiles(whole, CURVE)),
        parts_s=critical_parts(found.table),
        flaps=found.flaps,
        extra=(("cost", found.cost),),
    )


def suites() -> Sequence[Scaling]:
    """All of them."""
    return (
        Scaling(
            "scaling_ramp",
            "llm-d's published ramp, 2 to 10 to 1 requests a second, batched engines, 100 s to start one",
            ramps,
        ),
        Scaling("scaling_bursts", "agent runs and recorded calls in bursts, per cold start and call duration", bursts),
        Scaling(
            "scaling_daily", "agent runs over a day squeezed together, with bursts", days, {"servegen": ("seasonal",)}
        ),
        Scaling(
            "scaling_agents",
            "agent runs over three models whose later load differs from the front's, 60 s to start a replica",
            mixes,
            {"cold 60 s, calls 10 s": ("no_prompt", "trained", "truth")},
        ),
        Scaling("scaling_kinds", "agent runs on eight slow devices a model and any number of fast, dearer ones", kinds),
        Scaling("scaling_two_phase", "two models on 48 machines; halfway, the fan-out more than doubles", phases),
    )

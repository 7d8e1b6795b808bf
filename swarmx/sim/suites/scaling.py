"""Scalers side by side: the same arrivals, replicas that take time to start; latency, and the replicas it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import swarmx
from swarmx.scaling import SCALERS
from swarmx.sim.results import percentiles
from swarmx.sim.scaling.agents import Waves, agents, no_queue_s, two_phase
from swarmx.sim.scaling.ramp import ramp
from swarmx.sim.scaling.recorded import AZURE, SERVEGEN, azure_calls, servegen_day
from swarmx.sim.scaling.scenario import ScalingRun, Scenario, run
from swarmx.sim.suites.cells import POLICIES, Cell, Plan, World
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import CURVE, Outcome, critical_parts
from swarmx.sim.suites.worlds import SLO_FACTOR

Array = NDArray[np.float64]
ARRIVALS = Path(swarmx.__file__).parents[2] / "shared" / "data" / "arrivals"  # used where present
ARMS = {"tail_demand": "type", "swarmx": "type", "clairvoyant": "oracle"}
ALWAYS = ("hpa", "queue_length", "keda_latency", "clairvoyant")
Build = Callable[[int, float], Scenario]  # seed, seconds that the run should last where that can be chosen
QUICK_SPAN_S, SPAN_S = 2400.0, 7200.0
QUICK_WORKFLOWS = 300  # a plan with fewer workflows than this gets the short span


@dataclass(frozen=True, slots=True)
class Scaling:
    """One suite. regimes : name -> scenario; the seed draws arrivals, lengths and start-up times"""

    name: str
    about: str
    regimes: Callable[[], Mapping[str, Build]]
    needs_log: bool = False

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        wanted = [p for p in SCALERS if p in plan.policies or p in ALWAYS]
        if set(POLICIES) <= set(plan.policies):
            wanted = list(SCALERS)
        return [
            Cell(self.name, self.name, regime, 1.0, policy, ARMS.get(policy), seed, plan.workflows)
            for regime in self.regimes()
            for policy in wanted
            for seed in plan.seeds
        ]

    def world(self, material: Material, cell: Cell) -> World:
        """Workload and the replicas at the start; what a scaler adds is not in it."""
        raise NotImplementedError("a scaling suite runs its cells itself, see `outcome`")

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        span_s = QUICK_SPAN_S if cell.workflows < QUICK_WORKFLOWS else SPAN_S
        scenario = self.regimes()[cell.regime](cell.seed, span_s)
        found = run(scenario, cell.policy, seed=cell.seed)
        return outcome_of(found, scenario)

    def settings(self, material: Material) -> Mapping[str, float]:
        return {"workflow_slo_over_no_queue_median": SLO_FACTOR}


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
    )


def _bursts() -> dict[str, Build]:
    def waves(seed: int, span_s: float, cold_s: float, call_s: float) -> Scenario:
        return agents(seed, call_s, cold_s, Waves(0.05, depth=0.0, burst_every_s=900.0), span_s, "bursts")

    found: dict[str, Build] = {
        f"cold {cold:g} s, calls {call:g} s": lambda seed, span, cold=cold, call=call: waves(seed, span, cold, call)  # type: ignore[misc]
        for cold, call in ((30.0, 30.0), (60.0, 10.0), (120.0, 10.0))
    }
    if (ARRIVALS / AZURE).is_file():
        found["azure"] = lambda seed, span: azure_calls(ARRIVALS / AZURE, seed, span / 6)
    return found


def _daily() -> dict[str, Build]:
    found: dict[str, Build] = {
        "sine": lambda seed, span: agents(seed, waves=Waves(0.05, 0.8, span, 2400.0), span_s=span, name="daily")
    }
    if (ARRIVALS / SERVEGEN).is_file():
        found["servegen"] = lambda seed, span: servegen_day(ARRIVALS / SERVEGEN, seed, span_s=span)
    return found


def suites() -> Sequence[Scaling]:
    """All of them."""
    return (
        Scaling(
            "scaling_ramp",
            "llm-d's published ramp, 2 to 10 to 1 requests a second, batched engines, 100 s to start one",
            lambda: {"ramp": lambda seed, span: ramp(seed)},
        ),
        Scaling("scaling_bursts", "agent runs and recorded calls in bursts, per cold start and call duration", _bursts),
        Scaling("scaling_daily", "agent runs over a day squeezed together, with bursts", _daily),
        Scaling(
            "scaling_agents",
            "agent runs over three models whose later load differs from the front's, 60 s to start a replica",
            lambda: {"cold 60 s, calls 10 s": lambda seed, span: agents(seed, span_s=span)},
        ),
        Scaling(
            "scaling_two_phase",
            "two models on 48 machines; halfway, the fan-out more than doubles",
            lambda: {"two_phase": lambda seed, span: two_phase(seed)},
        ),
    )

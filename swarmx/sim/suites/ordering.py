"""What the suites of queue disciplines share: a trial is one simulation, a contest the table of its policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from swarmx.scheduler import Scheduler
from swarmx.sim import Arm, CallTable, Cluster, Timing, Workload, percentiles, simulate
from swarmx.sim.accounts import accounts_of, figures_of
from swarmx.sim.contracts import SimulatedScheduler
from swarmx.sim.suites.cells import QUICK, Cell, Plan
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import CURVE, Outcome, critical_parts

Array = NDArray[np.float64]
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Trial:
    """Who schedules what where. slo_s : latency limit of each workflow; measure : what else is read off the run."""

    workload: Workload
    cluster: Cluster
    scheduler: Scheduler
    slo_s: Array
    arm: Arm | None = None
    timing: Timing = field(default_factory=Timing)
    measure: Callable[[CallTable], Figures] = lambda table: {}

    def run(self) -> tuple[CallTable, dict[str, float]]:
        """The calls, and the figures: mean and P99 workflow latency, SLO attainment, and the trial's own."""
        scheduler: SimulatedScheduler = self.scheduler
        table = simulate(self.workload, self.cluster, scheduler, self.arm, self.timing)
        latency = table.workflow_latency_s()
        within = latency <= self.slo_s[table.workflow_ok()]
        figures = {
            "mean_s": float(latency.mean()),
            "p99_s": percentiles(latency)[2],
            "slo_attainment": float(within.sum()) / len(self.slo_s),
        }
        return table, {**figures, **self.measure(table)}


Build = Callable[[str, float, int, bool], Trial]  # policy, load, seed, short runs?


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure to be read off a suite's rows.

    about : what it is; claimed : what its paper, or our own target, says; over : policy whose figure it is divided by
    """

    about: str
    claimed: str
    figure: str
    policy: str
    load: float
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """One suite. policies : rows of the table; paper : what the paper reports; shown : that beside ours, in reports"""

    name: str
    about: str
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    build: Build
    paper: Mapping[str, float] = field(default_factory=dict)
    needs_log: bool = False
    shown: tuple[Claim, ...] = ()

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        return [
            Cell(self.name, self.name, "as in the paper", load, policy, None, seed, plan.workflows)
            for load in self.loads
            for policy in self.policies
            for seed in plan.seeds
        ]

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        trial = self.build(cell.policy, cell.load, cell.seed, cell.workflows <= QUICK.workflows)
        table, figures = trial.run()
        calls, whole = table.call_latency_s(), table.workflow_latency_s()
        weights = trial.scheduler.observers.sharing.weights
        figures |= figures_of(accounts_of(table, weights), weights)
        span = float(np.nanmax(table.finished_s) - table.workflow_arrival_s[0])
        replicas = len(trial.cluster.replicas)
        return Outcome(
            call=(float(calls.size), *percentiles(calls), figures["slo_attainment"]),
            workflow=(float(whole.size), *percentiles(whole), figures["slo_attainment"]),
            ttft_p99_s=percentiles(table.ttft_s())[2],
            replica_seconds=span * replicas,
            replicas=replicas,
            no_end=int((~table.ok).sum()),
            curve_s=tuple(percentiles(whole, CURVE)),
            parts_s=critical_parts(table),
            extra=tuple(sorted(figures.items())),
        )

    def settings(self, material: Material) -> Figures:
        return {f"paper/{name}": value for name, value in self.paper.items()}

    def figures(self, policy: str, load: float, seeds: Sequence[int], short: bool) -> dict[str, float]:
        """Each figure's mean over seeds."""
        found = [_figures(self, policy, load, seed, short) for seed in seeds]
        return {name: float(np.mean([f[name] for f in found])) for name in found[0]}

    def ratio(self, figure: str, policy: str, other: str, load: float, seeds: Sequence[int], short: bool) -> float:
        """Geometric mean over seeds of a figure's ratio between two policies on the same arrivals."""
        mine, theirs = (
            np.array([_figures(self, name, load, seed, short)[figure] for seed in seeds]) for name in (policy, other)
        )
        return float(np.exp(np.mean(np.log(mine / theirs))))


@lru_cache(maxsize=512)
def _run(build: Build, policy: str, load: float, seed: int, short: bool) -> tuple[tuple[str, float], ...]:
    return tuple(build(policy, load, seed, short).run()[1].items())


def _figures(contest: Contest, policy: str, load: float, seed: int, short: bool) -> dict[str, float]:
    return dict(_run(contest.build, policy, load, seed, short))


def no_limit(workload: Workload) -> Array:
    """Latency limits of workflows that have none."""
    return np.full(len(workload.workflows), np.inf)


def of_kind(table: CallTable, kind: str) -> NDArray[np.bool_]:
    """(calls,) which belong to workflows of that kind."""
    chosen = np.array([w.kind == kind for w in table.workload.workflows])
    return np.asarray(chosen[table.workflow])

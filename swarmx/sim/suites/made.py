"""Suites over made-up workloads: regimes by name, each a pool with its own workflows, arrivals and loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.presets import PRESETS, preset
from swarmx.routing.prefix_affinity import PrefixAffinity
from swarmx.scheduler import Scheduler
from swarmx.sim import Arm, Cluster, ReplicaSpec, cluster, het_speeds, hom_speeds, simulate
from swarmx.sim.arms import Calibrated, Oracle, PerType
from swarmx.sim.capacity import Capacity, at_load, capacity
from swarmx.sim.suites.cells import LED, POLICIES, QUICK, VARIANTS, Cell, Plan, World
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome, outcome_of
from swarmx.sim.suites.worlds import no_queue_p99_s, slo_limits
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import Gaps, SimWorkflow, poisson

ENGINE = EngineConstants(0.015, 0.0005, 1.5e-7, 5e-5)  # a 7-billion-parameter model on one accelerator, about
JOB = EngineConstants(0.01)  # 500 tokens are 5 s
SAMPLE_SEED = 999  # the sample that capacity and arms are made from is nobody's workload
SAMPLE = 200
REPLICAS = 12  # plans name workflows for that many replicas
HET, HOM = tuple(het_speeds()), tuple(hom_speeds())
MILD = (1.0,) * 6 + (0.8,) * 6
Make = Callable[[int, Sizes, np.random.Generator], list[SimWorkflow]]
OWN_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # row name -> preset and options
    **VARIANTS,
    "late_2p": ("late", {"prefix_weight": 2.0}),
    "late_half": ("late", {"harm_weight": 0.5}),
    "session_affinity": ("prefix_affinity", {"placement": PrefixAffinity(key="workflow")}),
}


@dataclass(frozen=True, slots=True)
class Regime:
    """One pool under its loads, the most telling one first.

    speeds : one per replica; slots 0 is the job model, one call at a time; make : draws n workflows
    per_workflow : workflows for each one of a plan, more where they have a single call
    """

    name: str
    loads: tuple[float, ...]
    speeds: tuple[float, ...] = HET
    slots: int = 32
    kv_tokens: int = 60_000
    sizes: Sizes = field(default_factory=Sizes)
    gaps: Gaps = poisson
    make: Make = mix
    block_tokens: int = 0
    per_workflow: int = 1

    @property
    def spec(self) -> ReplicaSpec:
        if not self.slots:
            return ReplicaSpec("r", service=JOB)
        return ReplicaSpec(
            "r", batched=True, slots=self.slots, service=ENGINE, kv_capacity_tokens=self.kv_tokens,
            block_tokens=self.block_tokens,
        )  # fmt: skip

    def draw(self, n: int, *seed: int) -> list[SimWorkflow]:
        return self.make(n, self.sizes, np.random.default_rng(seed))


@dataclass(frozen=True, eq=False)
class Ground:
    """What all cells of a regime share."""

    cluster: Cluster
    capacity: Capacity
    sample: Material

    @property
    def engines(self) -> dict[str, EngineConstants]:
        return {r.device: r.service.at_speed(r.speed) for r in self.cluster.replicas}


@cache
def ground_of(regime: Regime) -> Ground:
    """Replicas, the rate of load 1, and the sample."""
    replicas = cluster(regime.spec, regime.speeds)
    sample = regime.draw(SAMPLE, SAMPLE_SEED)
    return Ground(replicas, capacity(replicas, sample), Material(regime.name, tuple(sample), {}, (), None, ""))


def arm_of(name: str | None, sample: Sequence[SimWorkflow]) -> Arm | None:
    """The usual arms of made-up calls. Raises BadInput for another name."""
    known: dict[str, Callable[[], Arm]] = {
        "calibrated": lambda: Calibrated(sample), "type": lambda: PerType(sample), "oracle": Oracle,
    }  # fmt: skip
    if name is None or name == "none":
        return None
    if name not in known:
        raise BadInput(f"unknown arm {name!r}; choose calibrated, type, oracle or none")
    return known[name]()


@dataclass(frozen=True)
class Made:
    """A suite of regimes. Rows come from the plan where policies were asked for, else from the suite.

    policies : of a full run; short : of a quick one; arms : that `arm_policies` of a full run see, the default first
    share : of the plan's workflows that a cell runs
    Schedulers are told speeds and slots; service constants they learn as they go.
    """

    name: str
    about: str
    regimes: tuple[Regime, ...]
    policies: tuple[str, ...]
    short: tuple[str, ...]
    arms: tuple[str, ...] = ("calibrated", "type", "none")
    share: float = 1.0
    short_share: float = 0.4
    short_seeds: int = 1
    needs_log: bool = False

    def regime(self, name: str) -> Regime:
        return next(r for r in self.regimes if r.name == name)

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        quick = plan.workflows <= QUICK.workflows
        seeds = plan.seeds[: self.short_seeds] if quick else plan.seeds
        share = self.share * (self.short_share if quick else 1.0)
        return [
            Cell(self.name, self.name, regime.name, load, policy, arm, seed, self._workflows(regime, plan, share))
            for regime in self.regimes
            for load in (regime.loads[:1] if quick else regime.loads)
            for policy in self.rows(plan)
            for arm in self.arms_of(policy, not quick and policy in plan.arm_policies)
            for seed in seeds
        ]

    def rows(self, plan: Plan) -> tuple[str, ...]:
        """Policies of a run: the suite's own unless the plan holds others than the usual ones."""
        if set(plan.policies) <= {*POLICIES, *VARIANTS}:
            return self.short if plan.workflows <= QUICK.workflows else self.policies
        asked = [p for p in plan.policies if p in PRESETS or p in OWN_VARIANTS]
        return tuple(dict.fromkeys((LED, *asked)))

    def arms_of(self, policy: str, every: bool) -> tuple[str | None, ...]:
        needs = PRESETS[OWN_VARIANTS.get(policy, (policy, {}))[0]].needs
        if needs == "prediction":
            return self.arms if every else self.arms[:1]
        return ("oracle",) if needs == "oracle" else (None,)

    def _workflows(self, regime: Regime, plan: Plan, share: float) -> int:
        size = min(max(len(regime.speeds) / REPLICAS, 0.5), 2.0) * regime.per_workflow
        return max(round(plan.workflows * share * size), 1)

    def world(self, material: Material, cell: Cell) -> World:
        regime = self.regime(cell.regime)
        ground = ground_of(regime)
        drawn = regime.draw(cell.workflows, cell.seed, 1)
        workload = at_load(drawn, cell.load, ground.capacity, regime.gaps, np.random.default_rng([cell.seed, 2]))
        slo_s, call_slo_s = slo_limits(ground.sample, drawn, ground.cluster)
        return World(workload, ground.cluster, arm_of(cell.arm, ground.sample.workflows), slo_s, call_slo_s)

    def scheduler(self, cell: Cell, world: World) -> Scheduler:
        name, options = OWN_VARIANTS.get(cell.policy, (cell.policy, {}))
        if block := self.regime(cell.regime).block_tokens:
            options = {"block_tokens": block, **options}
        return preset(name, cell.seed, None if world.engines is None else dict(world.engines), **options)

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        world = self.world(material, cell)
        table = simulate(
            world.workload, world.cluster, self.scheduler(cell, world), world.arm, world.timing, seed=cell.seed
        )
        found = outcome_of(table, world)
        return replace(found, extra=(("cached_share", table.cached_share()),))

    def settings(self, material: Material) -> Mapping[str, float]:
        out = {}
        for regime in self.regimes:
            sample = regime.draw(SAMPLE, SAMPLE_SEED)
            out[f"{regime.name}/no_queue_p99_s"] = no_queue_p99_s(sample, cluster(regime.spec, regime.speeds))
        return out

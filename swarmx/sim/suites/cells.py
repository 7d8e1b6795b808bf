"""A suite is a list of cells; a cell is one simulation: a policy, an arm, a load, a seed.

A suite says two things: which cells there are, and what the outcome of one is. Most suites describe a world and
leave the rest to `outcome.simulated`; those whose replicas come and go run their cells themselves. Processes, caching,
pairing by seed and reporting are the same for every suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.predict.means import MEANS
from swarmx.presets import PRESETS
from swarmx.scaling import SCALERS
from swarmx.sim import Arm, Cluster, Timing, Workload
from swarmx.sim.suites.material import Material

if TYPE_CHECKING:
    from swarmx.sim.suites.outcome import Outcome

Array = NDArray[np.float64]
LED = "least_outstanding_per_speed"
SIMPLE = ("random", "round_robin", "power_of_two", "least_outstanding", LED, "central_fcfs")
POLICIES = (*SIMPLE, "murakkab", "least_expected", "swarmx", "push", "late", "clairvoyant")
CORE = ("round_robin", "power_of_two", LED, "central_fcfs", "swarmx", "late", "clairvoyant")
VARIANTS: dict[str, tuple[str, dict[str, float | str]]] = {  # row name -> preset and options, for ablations
    "late_c0": ("late", {"work_weight": 0.0}),
    **{f"late_w{w}": ("late", {"wait_weight": float(w)}) for w in (1, 2, 4, 8)},
}
REFERENCES = {
    **{name: name for name in SIMPLE},
    LED: "led",
    "clairvoyant": "clairvoyant",
}  # policy -> name in `vs`


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation. Everything that its outcome depends on, besides material and code, stands here.

    policy : a preset or one of `VARIANTS`
    """

    suite: str
    workload: str
    regime: str
    load: float
    policy: str
    arm: str | None
    seed: int
    workflows: int

    @property
    def title(self) -> str:
        arm = f" ({self.arm})" if self.arm else ""
        return f"{self.suite} {self.regime} {self.load:g} {self.policy}{arm} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to run.

    workflows : per simulation
    loads : of the sweep; at `main_loads` all policies and arms run, at the others `side_policies` with one arm
    arm_policies : policies that run with every arm
    """

    seeds: tuple[int, ...]
    workflows: int
    loads: tuple[float, ...]
    main_loads: tuple[float, ...]
    policies: tuple[str, ...] = POLICIES
    side_policies: tuple[str, ...] = POLICIES
    arm_policies: tuple[str, ...] = ("least_expected", "swarmx", "push", "late")

    def only(self, wanted: Sequence[str]) -> Plan:
        """The same plan for these policies and the references that every comparison needs.

        Raises BadInput for a policy that is neither a preset nor a scaler.
        """
        known = (*PRESETS, *VARIANTS, *SCALERS)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise BadInput(f"unknown policy {unknown[0]!r}; choose from {', '.join(dict.fromkeys(known))}")
        kept = tuple(dict.fromkeys((*wanted, *REFERENCES)))
        return replace(self, policies=kept, side_policies=tuple(p for p in kept if p in wanted or p in CORE))


# 200 workflows are some 60 calls per replica of the headline's twelve: shorter runs end before queues have built up
QUICK = Plan(tuple(range(4)), 200, (0.5, 0.7, 0.8, 0.9), (0.8,), POLICIES, CORE, ("swarmx", "late"))
# more workflows and seeds than the quick plan, so that intervals say something, and fewer arms, so that it ends in time
DEMO = replace(QUICK, seeds=tuple(range(8)), workflows=300, arm_policies=("late",))
FULL = Plan(
    tuple(range(8)),
    1000,
    (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05),
    (0.5, 0.7, 0.8, 0.9),
    (*POLICIES, "late_c0"),
)


@dataclass(frozen=True, slots=True)
class World:
    """What a cell runs in.

    slo_s, call_slo_s : latency limit of each workflow and of each call, in the order of the workload
    engines : constants per device kind that schedulers are told; None: they learn them as they go
    """

    workload: Workload
    cluster: Cluster
    arm: Arm | None
    slo_s: Array
    call_slo_s: Array
    engines: Mapping[str, EngineConstants] | None = None
    timing: Timing = field(default_factory=Timing)


class Suite(Protocol):
    """What the registry holds. It must pickle: cells run in other processes."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """One line for `swarmx policies`."""

    @property
    def needs_log(self) -> bool:
        """Whether its cells are made from the material's workflows."""

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        """All cells, in the order of the report."""

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell. Draws depend on the cell's seed alone, so that policies and arms of a seed are paired."""

    def settings(self, material: Material) -> Mapping[str, float]:
        """Numbers that the suite measured or chose, for `meta.settings`; `<regime>/no_queue_p99_s` among them."""


class InWorlds(Protocol):
    """A suite whose cells differ in nothing but their world and their policy; see `outcome.simulated`."""

    def world(self, material: Material, cell: Cell) -> World:
        """The world of one cell: the same workload and arrivals for every policy and arm of a seed."""


def arms_of(policy: str, every: bool, known: tuple[str, ...]) -> tuple[str | None, ...]:
    """Arms that a policy runs with; `known` are those that the material can feed, best default first.

    `psc` runs with every predictor of a mean that the material has, and nobody else does.
    """
    means = tuple(name for name in known if name in MEANS)
    if policy == "psc" and means:
        return means
    known = tuple(name for name in known if name not in means)
    needs = PRESETS[VARIANTS.get(policy, (policy, {}))[0]].needs
    if needs == "prediction":
        return known if every else known[:1]
    return ("oracle",) if needs == "oracle" else (None,)


def sweep(suite: str, workload: str, regimes: tuple[str, ...], plan: Plan, known: tuple[str, ...]) -> list[Cell]:
    """Every policy under every load in every regime, with paired seeds."""
    return [
        Cell(suite, workload, regime, load, policy, arm, seed, plan.workflows)
        for regime in regimes
        for load in plan.loads
        for policy in (plan.policies if load in plan.main_loads else plan.side_policies)
        if policy in PRESETS or policy in VARIANTS  # not those that only scale
        for arm in arms_of(policy, load in plan.main_loads and policy in plan.arm_policies, known)
        for seed in plan.seeds
    ]

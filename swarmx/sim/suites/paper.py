"""The paper's three applications in shape: deep research, text to video, code agents, on mixed device kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.sim import Cluster, ReplicaSpec, simulate
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.suites.cells import LED, Cell, World
from swarmx.sim.suites.made import OWN_VARIANTS, REPLICAS, Made, Make, Regime, arm_of
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome, outcome_of
from swarmx.sim.suites.worlds import slo_limits
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import SimCall, SimWorkflow, poisson

SECOND = EngineConstants(1.0)  # lengths are seconds on the fastest kind of device
RATIOS = (1.0, 0.5, 0.25)  # device kinds, as many replicas of each
SAMPLE_SEED = 999


class _Tasks:
    """Calls whose duration is normal around what the prompt tells; a share of the spread is told, the rest is luck."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.calls: list[SimCall] = []

    def add(self, type_: str, model: str, mean_s: float, sd_s: float, parents: tuple[int, ...] = ()) -> int:
        spread = np.sqrt(np.log1p((sd_s / mean_s) ** 2))
        known, luck = np.sqrt(0.6) * spread, np.sqrt(0.4) * spread
        median = mean_s * float(np.exp(known * self.rng.standard_normal() - spread**2 / 2))
        seconds = median * float(np.exp(luck * self.rng.standard_normal()))
        self.calls.append(
            SimCall(
                f"{type_}{len(self.calls)}", seconds, parents, type=type_, model=model, group=type_,
                median_tokens=median, sigma=float(luck),
            )
        )  # fmt: skip
        return len(self.calls) - 1


def deep_research(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """Plan -> k searches -> a reader after each -> report; k in [5, 20] with two modes, 6 and then 14.

    Durations in seconds of the public ancestor's experiment: plan 30 (2), search 3 (.3), reader 2 (.2), report 25 (2).
    The second half of the workflows has the wider mode more often: 25 % before, 75 % after.
    """
    out = []
    for i in range(n):
        wide = rng.random() < (0.25 if i < n // 2 else 0.75)
        width = int(np.clip(round(rng.normal(14 if wide else 6, 1.5)), 5, 20))
        tasks = _Tasks(rng)
        plan = tasks.add("plan", "writer", 30.0, 2.0)
        searches = [tasks.add("search", "reader", 3.0, 0.3, (plan,)) for _ in range(width)]
        readers = [tasks.add("read", "reader", 2.0, 0.2, (s,)) for s in searches]
        tasks.add("report", "writer", 25.0, 2.0, tuple(readers))
        out.append(SimWorkflow(f"d{i}", 0.0, tuple(tasks.calls), kind="deep_research"))
    return out


def text_to_video(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """Script -> storyboard (short calls of a language model) -> 1 to 4 clips (long calls of a video model)."""
    out = []
    for i in range(n):
        tasks = _Tasks(rng)
        script = tasks.add("script", "writer", 4.0, 2.0)
        board = tasks.add("storyboard", "writer", 6.0, 3.0, (script,))
        for _ in range(int(rng.integers(1, 5))):
            tasks.add("clip", "video", 40.0, 40.0, (board,))
        out.append(SimWorkflow(f"v{i}", 0.0, tuple(tasks.calls), kind="text_to_video"))
    return out


def code_agents(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """Plan, parallel coders, repairs and merge, as in `swarmx.sim.synthetic`; all on one model."""
    found = mix(n, replace(sizes, mean_tokens=5.0, prompt_tokens=0.0, model="writer"), rng)
    return [replace(w, kind="code_agents") for w in found]


@dataclass(frozen=True, slots=True)
class Pools:
    """Replicas per model."""

    counts: tuple[tuple[str, int], ...]

    def cluster(self) -> Cluster:
        """A third of each model's replicas of every device kind."""
        return Cluster(
            tuple(
                ReplicaSpec(f"{m}{i:02d}", m, f"x{RATIOS[i * 3 // n]:g}", speed=RATIOS[i * 3 // n], service=SECOND)
                for m, n in self.counts
                for i in range(n)
            )
        )


POOLS = {
    "deep_research": (deep_research, Pools((("writer", 24), ("reader", 24)))),
    "text_to_video": (text_to_video, Pools((("writer", 12), ("video", 36)))),
    "code_agents": (code_agents, Pools((("writer", 48),))),
}
"""Application -> how its workflows are drawn, and who serves them: 48 replicas in all."""


class Paper(Made):
    """48 replicas in one or two pools, three device kinds with speeds 1, 1/2, 1/4, one call at a time; a scheduler for
    each model, all with the same policy."""

    def world(self, material: Material, cell: Cell) -> World:
        make, pools = POOLS[cell.regime]
        replicas = pools.cluster()
        sample = make(300, Sizes(), np.random.default_rng(SAMPLE_SEED))
        drawn = make(cell.workflows, Sizes(), np.random.default_rng([cell.seed, 1]))
        rate = capacity(replicas, sample)
        workload = at_load(drawn, cell.load, rate, poisson, np.random.default_rng([cell.seed, 2]))
        slo = slo_limits(Material(cell.regime, tuple(sample), {}, (), None, ""), drawn, replicas)
        return World(workload, replicas, arm_of(cell.arm, sample), *slo)

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        world = self.world(material, cell)
        name, options = OWN_VARIANTS.get(cell.policy, (cell.policy, {}))
        schedulers = {model: preset(name, cell.seed, **options) for model in world.cluster.models()}
        return outcome_of(simulate(world.workload, world.cluster, schedulers, world.arm, seed=cell.seed), world)

    def settings(self, material: Material) -> dict[str, float]:
        return {f"{name}/replicas": float(len(pools.cluster().replicas)) for name, (_, pools) in POOLS.items()}


def _regime(name: str, make: Make) -> Regime:
    return Regime(name, (0.8, 0.6, 0.9), (1.0,) * (2 * REPLICAS), 0, make=make)


PAPER = Paper(
    "paper",
    "deep research, text to video, code agents on 48 replicas with speeds 1 : 2 : 4",
    tuple(_regime(name, make) for name, (make, _) in POOLS.items()),
    (
        "random", "round_robin", "power_of_two", LED, "prequal", "central_fcfs", "murakkab", "psc", "least_expected",
        "swarmx", "push", "late", "late_clairvoyant",
    ),
    ("round_robin", "power_of_two", LED, "swarmx", "late"),
    short_share=0.2,
)  # fmt: skip

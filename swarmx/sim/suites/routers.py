"""Several routers in front of one pool, each with its own queue and a view of the others that is late."""

from __future__ import annotations

from dataclasses import dataclass, replace

from swarmx.presets import preset
from swarmx.shard import Shard
from swarmx.sim import Timing, simulate
from swarmx.sim.suites.batched import JOBS, REGIMES
from swarmx.sim.suites.cells import LED, QUICK, Cell, Plan
from swarmx.sim.suites.made import Made
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome, outcome_of


@dataclass(frozen=True, slots=True)
class Setup:
    """routers : that share the pool; every_s : how often replicas report

    free : replicas start only what can start at once, and tell their state with every answer and refusal
    offers : routers tell each other their heads as often, and offer each other places that get free (`swarmx.shard`)
    """

    policy: str
    routers: int = 1
    every_s: float | None = None
    free: bool = False
    hashed: bool = False
    offers: bool = False


SETUPS = {
    LED: Setup(LED),
    "late": Setup("late"),
    "late 4r .1s": Setup("late", 4, 0.1),
    "late 4r 1s": Setup("late", 4, 1.0),
    "late 4r 1s free": Setup("late", 4, 1.0, True),
    "late 4r 1s free hash": Setup("late", 4, 1.0, True, True),
    "late 4r 1s offer": Setup("late", 4, 1.0, True, offers=True),
    "late 4r 5s": Setup("late", 4, 5.0),
    "late 4r 5s free": Setup("late", 4, 5.0, True),
    "push 4r 1s": Setup("push", 4, 1.0),
    "led 4r 1s": Setup(LED, 4, 1.0),
    "swarmx 4r 1s": Setup("swarmx", 4, 1.0),
}
SHORT = (LED, "late", "late 4r 1s", "late 4r 1s free", "late 4r 1s offer")


class Routers(Made):
    """Rows are setups: one owner of the queue, or four routers whose view of the pool is as old as the reports."""

    def rows(self, plan: Plan) -> tuple[str, ...]:
        return SHORT if plan.workflows <= QUICK.workflows else tuple(SETUPS)

    def arms_of(self, policy: str, every: bool) -> tuple[str | None, ...]:
        return (None,) if SETUPS[policy].policy == LED else ("calibrated",)

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        """Run one cell."""
        world, setup = self.world(material, cell), SETUPS[cell.policy]
        replicas = replace(
            world.cluster, replicas=tuple(replace(r, start_if_free=setup.free) for r in world.cluster.replicas)
        )
        schedulers = [preset(setup.policy, cell.seed + 1000 * i) for i in range(setup.routers)]
        told_s = setup.every_s if setup.offers else None
        routers = [Shard(s, f"router{i}") for i, s in enumerate(schedulers)] if setup.offers else schedulers
        timing = Timing(report_period_s=setup.every_s, answers_tell=setup.free, heads_period_s=told_s)
        table = simulate(
            world.workload, replicas, {"model": routers}, world.arm, timing,
            router_of="workflow" if setup.hashed else "random", seed=cell.seed,
        )  # fmt: skip
        return outcome_of(table, world)


ROUTERS = Routers(
    "routers",
    "one owner of the queue against four routers that see each other only through reports .1 to 5 s apart",
    (JOBS[0], *(r for r in REGIMES if r.name in ("het_b8", "het_kv"))),
    tuple(SETUPS),
    SHORT,
)

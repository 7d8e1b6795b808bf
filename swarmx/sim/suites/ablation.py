"""The composed router taken apart: composition, tail functional, sampled candidates, age conditioning."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from swarmx.combination import Combination
from swarmx.ordering import Fcfs
from swarmx.presets import preset
from swarmx.routing.composed import Composed
from swarmx.scheduler import Scheduler
from swarmx.sim.suites.batched import JOBS
from swarmx.sim.suites.cells import LED, Cell, World
from swarmx.sim.suites.made import Made, Regime
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import SimWorkflow

COMPOSITIONS: dict[str, str | float] = {"comonotone": "comonotone", "independent": "independent", "rho .5": 0.5}
FUNCTIONALS: dict[str, dict[str, str | float]] = {
    "mean": {"functional": "mean"},
    "mean + sd": {"functional": "mean_sd"},
    "q95": {"functional": "quantile", "level": 0.95},
    "q99": {"functional": "quantile", "level": 0.99},
    "CVaR95": {"functional": "cvar", "level": 0.95},
}
CANDIDATES = (4, 2, 1)
SURE, UNSURE = 0.95, 0.1  # shares of the log variance that are known of either half of the calls


def uneven(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """Agent workflows of which every second one is far less predictable than the others."""
    halves = [iter(mix(n, replace(sizes, rho2=rho2), rng)) for rho2 in (SURE, UNSURE)]
    return [replace(next(halves[i % 2]), id=f"u{i}") for i in range(n)]


def _rows() -> dict[str, Composed]:
    out: dict[str, Composed] = {}
    for (how, composition), (what, options), aged in product(COMPOSITIONS.items(), FUNCTIONALS.items(), (False, True)):
        name = f"{how}, {what}{', age' if aged else ''}"
        out[name] = Composed(composition=composition, age_conditioned=aged, **options)  # type: ignore[arg-type]
    for count, aged in product(CANDIDATES, (False, True)):
        name = f"comonotone, q95{', age' if aged else ''}, {count} candidates"
        out[name] = Composed(candidates=count, age_conditioned=aged)
    return out


ROWS = _rows()


class Ablation(Made):
    """Rows are settings of the composed router, with `late` and LED beside them."""

    def arms_of(self, policy: str, every: bool) -> tuple[str | None, ...]:
        return (None,) if policy == LED else ("calibrated",)

    def scheduler(self, cell: Cell, world: World) -> Scheduler:
        if cell.policy in ROWS:
            return Scheduler(cell.policy, Combination(ROWS[cell.policy], Fcfs()), seed=cell.seed)
        return preset(cell.policy, cell.seed)


JOB = JOBS[0]
ABLATION = Ablation(
    "ablation",
    "the composed router: compositions x functionals x age conditioning, and sampled candidates",
    (
        replace(JOB, loads=(0.8,)),
        replace(JOB, name="job_het_uneven", loads=(0.8,), make=uneven),
        Regime("het_b8", (0.92,), slots=8),
    ),
    (LED, "push", "late", *ROWS),
    (LED, "late", "comonotone, q95", "comonotone, mean"),
    share=0.5,
    short_share=0.2,
)

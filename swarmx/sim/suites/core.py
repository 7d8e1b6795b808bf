"""The suites of the scheduling core, by name."""

from __future__ import annotations

from swarmx.sim.suites.ablation import ABLATION
from swarmx.sim.suites.batched import BATCHED, JOB_MODEL
from swarmx.sim.suites.made import Made
from swarmx.sim.suites.mispredict import MISPREDICT
from swarmx.sim.suites.paper import PAPER
from swarmx.sim.suites.prefix import PREFIX
from swarmx.sim.suites.regime_map import REGIME_MAP
from swarmx.sim.suites.routers import ROUTERS

CORE_SUITES: dict[str, Made] = {
    one.name: one for one in (BATCHED, JOB_MODEL, PREFIX, ROUTERS, MISPREDICT, PAPER, ABLATION, REGIME_MAP)
}

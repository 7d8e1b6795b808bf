"""Evaluations by name. A suite is one file with the cells and their world, and one line here."""

from __future__ import annotations

from swarmx.errors import BadInput
from swarmx.sim.suites.cells import DEMO, FULL, QUICK, Cell, Plan, Suite, World
from swarmx.sim.suites.core import CORE_SUITES
from swarmx.sim.suites.headline import Headline
from swarmx.sim.suites.material import Material, material_of
from swarmx.sim.suites.ordering_suites import ORDERING
from swarmx.sim.suites.real_log import RealLog
from swarmx.sim.suites.scaling import suites as scaling_suites

SUITES: dict[str, Suite] = {
    "headline": Headline(),
    "real_log": RealLog(),
    **CORE_SUITES,
    **{one.name: one for one in scaling_suites()},
    **{one.name: one for one in ORDERING},
}


def suite(name: str) -> Suite:
    """The suite of that name. Raises BadInput listing the known ones."""
    if name not in SUITES:
        raise BadInput(f"unknown suite {name!r}; choose one of {', '.join(SUITES)}")
    return SUITES[name]


__all__ = ["DEMO", "FULL", "QUICK", "SUITES", "Cell", "Material", "Plan", "Suite", "World", "material_of", "suite"]

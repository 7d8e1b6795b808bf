"""The log's workflows on the engines that served them, as their service model was fitted from the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from swarmx.errors import BadInput
from swarmx.sim import Cluster
from swarmx.sim.capacity import Capacity, capacity
from swarmx.sim.suites.cells import Cell, Plan, World, sweep
from swarmx.sim.suites.material import MODEL, Material
from swarmx.sim.suites.outcome import Outcome, simulated
from swarmx.sim.suites.worlds import no_queue_p99_s, resampled_world

REGIMES = ("as_recorded", "hom")


@dataclass(frozen=True, slots=True)
class RealLog:
    """Continuous batching. `as_recorded`: the log's own replicas; `hom`: as many of its fastest kind."""

    name: str = "real_log"
    about: str = "recorded workflows on batched engines fitted from the log: as recorded, and all of one kind"
    needs_log: bool = True

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        fewer = replace(plan, workflows=max(plan.workflows // 2, 1))  # a log's few replicas settle sooner
        return sweep(self.name, material.name, REGIMES, fewer, material.arms)

    def world(self, material: Material, cell: Cell) -> World:
        replicas, rate = _pool(material, cell.regime)
        return resampled_world(material, cell, replicas, rate, {r.device: r.service for r in replicas.replicas})

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        return simulated(self, material, cell)

    def settings(self, material: Material) -> Mapping[str, float]:
        out = {}
        for regime in REGIMES:
            replicas, rate = _pool(material, regime)
            out[f"{regime}/workflows_per_s_at_load_1"] = rate.workflows_per_s(material.workflows)
            out[f"{regime}/no_queue_p99_s"] = no_queue_p99_s(material.workflows, replicas)
            for device, r in {r.device: r for r in replicas.replicas}.items():
                for constant, value in zip("abcp", r.service.as_tuple(), strict=True):
                    out[f"{regime}/{device}/{constant}"] = value
                out[f"{regime}/{device}/slots"] = float(r.slots)
        return out


@cache
def _pool(material: Material, regime: str) -> tuple[Cluster, Capacity]:
    if material.cluster is None:
        raise BadInput(
            f"{material.name} names no replica with enough timed calls, so suite real_log cannot fit its engines; "
            "record replica, first_token_s and finished_s, or run --suite headline"
        )
    found = [replace(r, model=MODEL) for r in material.cluster.replicas]
    if regime == "hom":
        best = max(found, key=lambda r: r.told_speed or 0.0)
        found = [replace(best, id=r.id, told_speed=1.0) for r in found]
    replicas = Cluster(tuple(found))
    return replicas, capacity(replicas, material.workflows)

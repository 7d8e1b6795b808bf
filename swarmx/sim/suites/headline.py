"""The log's workflows on replicas that run one call at a time: how much can binding, order and prediction win?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from swarmx.engine import EngineConstants
from swarmx.sim import Cluster, ReplicaSpec, cluster, het_speeds, hom_speeds
from swarmx.sim.arms import cut_tokens
from swarmx.sim.capacity import Capacity, capacity
from swarmx.sim.suites.cells import Cell, Plan, World, sweep
from swarmx.sim.suites.material import MODEL, Material
from swarmx.sim.suites.outcome import Outcome, simulated
from swarmx.sim.suites.worlds import call_alone_s, no_queue_p99_s, resampled_world

CALL_S = 5.0  # mean duration of a call at speed 1 when the log says nothing about durations
REGIMES = ("het", "hom")


@dataclass(frozen=True, slots=True)
class Headline:
    """12 replicas of the job model: `het` 4 each at speed 1.0, 0.6 and 0.35; `hom` all at 0.65.

    At speed 1 the mean call takes as long as alone on the log's fastest engine, so that the tools between calls keep
    their weight.
    """

    name: str = "headline"
    about: str = "recorded workflows on 12 one-call-at-a-time replicas, mixed (het) and equal (hom) speeds"
    needs_log: bool = True

    def cells(self, material: Material, plan: Plan) -> list[Cell]:
        return sweep(self.name, material.name, REGIMES, plan, material.arms)

    def world(self, material: Material, cell: Cell) -> World:
        replicas, rate = _pool(material, cell.regime)
        engines = {r.device: EngineConstants(r.service.a / r.speed) for r in replicas.replicas}
        return resampled_world(material, cell, replicas, rate, engines)

    def outcome(self, material: Material, cell: Cell) -> Outcome:
        return simulated(self, material, cell)

    def settings(self, material: Material) -> Mapping[str, float]:
        out = {}
        for regime in REGIMES:
            replicas, rate = _pool(material, regime)
            out[f"{regime}/workflows_per_s_at_load_1"] = rate.workflows_per_s(material.workflows)
            out[f"{regime}/no_queue_p99_s"] = no_queue_p99_s(material.workflows, replicas)
        return {**out, "mean_call_s_at_speed_1": _call_s(material)}


def _mean_tokens(material: Material) -> float:
    return fmean(cut_tokens(call) for workflow in material.workflows for call in workflow.calls)


def _call_s(material: Material) -> float:
    if material.cluster is None:
        return CALL_S
    replicas = material.cluster.replicas
    calls = (call for workflow in material.workflows for call in workflow.calls)
    return fmean(min(call_alone_s(call, replica) for replica in replicas) for call in calls)


@cache
def _pool(material: Material, regime: str) -> tuple[Cluster, Capacity]:
    service = EngineConstants(_call_s(material) / _mean_tokens(material))
    speeds = het_speeds() if regime == "het" else hom_speeds()
    replicas = cluster(ReplicaSpec("replica", MODEL, service=service), speeds)
    return replicas, capacity(replicas, material.workflows)

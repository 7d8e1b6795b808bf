"""Simulation: the real scheduler objects over simulated replicas.

`simulate` (loop) runs a `Workload` (workload, synthetic, replay) on a `Cluster` (cluster, replicas_job,
replicas_batched) with predictions from an `Arm` (arms) and returns a `CallTable` (results). `capacity` finds the rate
that a load is a share of.
"""

from swarmx.sim.cluster import Cluster, Fault, ReplicaSpec, cluster, het_speeds, hom_speeds
from swarmx.sim.contracts import Arm, SimulatedScheduler, Timing
from swarmx.sim.loop import simulate
from swarmx.sim.results import CallTable, Comparison, compare, percentiles
from swarmx.sim.workload import SimCall, SimWorkflow, Workload, arriving

__all__ = [
    "Arm",
    "CallTable",
    "Cluster",
    "Comparison",
    "Fault",
    "ReplicaSpec",
    "SimCall",
    "SimWorkflow",
    "SimulatedScheduler",
    "Timing",
    "Workload",
    "arriving",
    "cluster",
    "compare",
    "het_speeds",
    "hom_speeds",
    "percentiles",
    "simulate",
]

"""SPOQ's claim: waves with barriers near the critical path; beside them, list scheduling without barriers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from swarmx.callgraph import CallGraph, GraphBook, Node
from swarmx.engine import EngineConstants
from swarmx.ordering import Order
from swarmx.ordering.critical_path import CriticalPath
from swarmx.ordering.ready_list import ReadyList
from swarmx.ordering.spoq_waves import SpoqWaves
from swarmx.presets import preset
from swarmx.sim import CallTable, Cluster, ReplicaSpec, SimCall, SimWorkflow, Workload
from swarmx.sim.arms import Oracle
from swarmx.sim.suites.ordering import Claim, Contest, Figures, Trial, no_limit

APART_S = 1e5  # each graph has the slots to itself
EVEN = ", even tasks"
POLICIES = (
    "spoq_waves", "ready_list", "critical_path", "fcfs", "sequential", "spoq_waves" + EVEN, "ready_list" + EVEN,
)  # fmt: skip
SLOTS = (2.0, 8.0, 32.0)  # in the place of loads; no plan is wider than 9, so 32 are as good as unbounded
SPREAD, EVEN_SPREAD = 0.8, 0.1  # log standard deviation of a task's work


@lru_cache(maxsize=32)
def plans(seed: int, count: int, spread: float = SPREAD) -> tuple[SimWorkflow, ...]:
    """Random layered plans of 10 to 60 tasks: 1 to 3 parents each, mostly from the layer before, lognormal work."""
    rng = np.random.default_rng([seed, 21])
    out = []
    for i in range(count):
        layers: list[list[int]] = []
        calls: list[SimCall] = []
        for _ in range(int(rng.integers(3, 8))):
            layer = []
            for _ in range(int(rng.integers(2, 10))):
                parents: set[int] = set()
                if layers:
                    for _ in range(int(rng.integers(1, 4))):
                        source = layers[-1] if rng.random() < 0.7 else layers[int(rng.integers(len(layers)))]
                        parents.add(int(rng.choice(source)))
                layer.append(len(calls))
                calls.append(
                    SimCall(f"c{len(calls)}", float(rng.lognormal(3.0, spread)), tuple(sorted(parents)), type="task")
                )
            layers.append(layer)
        out.append(SimWorkflow(f"p{i}", i * APART_S, tuple(calls)))
    return tuple(out)


def graph_of(workflow: SimWorkflow) -> CallGraph:
    """The plan as declared to the scheduler: ids and true work."""
    names = [f"{workflow.id}/{call.key}" for call in workflow.calls]
    return CallGraph(
        {
            n: Node(tuple(names[p] for p in c.parents), c.output_tokens)
            for n, c in zip(names, workflow.calls, strict=True)
        }
    )


def build(policy: str, slots: float, seed: int, short: bool) -> Trial:
    found = plans(seed, 40 if short else 300, EVEN_SPREAD if policy.endswith(EVEN) else SPREAD)
    policy = policy.removesuffix(EVEN)
    graphs = {w.id: graph_of(w) for w in found}
    book = GraphBook(graphs)
    orders: dict[str, Order] = {
        "spoq_waves": SpoqWaves(book), "ready_list": ReadyList(book), "critical_path": CriticalPath(book)
    }  # fmt: skip
    replicas = 1 if policy == "sequential" else int(slots)
    cluster = Cluster(tuple(ReplicaSpec(f"slot{i}") for i in range(replicas)))
    scheduler = preset("late", seed, {"default": EngineConstants(1.0)}, order=orders.get(policy, "fcfs"), aging=None)
    workload = Workload(found)

    def measure(table: CallTable) -> Figures:
        lower = [max(graphs[w.id].critical_path, graphs[w.id].work / slots) for w in found]
        ratios = table.workflow_latency_s() / np.array(lower)
        paths = table.workflow_latency_s() / np.array([graphs[w.id].critical_path for w in found])
        return {
            "makespan_over_bound": float(ratios.mean()), "worst_over_bound": float(ratios.max()),
            "makespan_over_critical_path": float(paths.mean()),
            "speedup": float(np.mean([graphs[w.id].work for w in found]) / table.workflow_latency_s().mean()),
        }  # fmt: skip

    return Trial(workload, cluster, scheduler, no_limit(workload), Oracle(), measure=measure)


SUITE = Contest(
    "ordering_spoq",
    "random plans on 2, 8 and 32 slots (in the place of loads): waves with barriers against list scheduling",
    POLICIES,
    SLOTS,
    build,
    {"makespan_over_critical_path_low": 1.03, "makespan_over_critical_path_high": 1.11, "speedup_on_2_slots": 1.4},
    shown=(
        Claim(
            "waves over the critical path, unbounded slots, even tasks",
            "paper 1.03 to 1.11",
            "makespan_over_critical_path",
            "spoq_waves, even tasks",
            32.0,
        ),
        Claim("the same, tasks of very different length", "", "makespan_over_critical_path", "spoq_waves", 32.0),
        Claim("ready list, the same", "", "makespan_over_critical_path", "ready_list", 32.0),
        Claim("ready list over its lower bound, 8 slots", "", "makespan_over_bound", "ready_list", 8.0),
        Claim("speed-up of waves on two slots", "paper 1.4", "speedup", "spoq_waves", 2.0),
        Claim("the same, ready list", "", "speedup", "ready_list", 2.0),
    ),
)


def claims(seeds: Sequence[int], short: bool) -> dict[str, dict[str, float]]:
    """makespan / max(critical path, work / slots) on 8 slots; over the critical path on 32; speed-up on two.

    The paper's 1.03 to 1.11 of the critical path is on plans without bound on slots; the spread of its tasks' work is
    not in what could be read. A wave waits for its longest task, so the ratio is the doing of that spread.
    """
    out = {}
    for policy in ("spoq_waves", "ready_list", "critical_path"):
        wide = SUITE.figures(policy, 32.0, seeds, short)
        out[policy] = {
            "makespan_over_bound": SUITE.figures(policy, 8.0, seeds, short)["makespan_over_bound"],
            "makespan_over_critical_path_32_slots": wide["makespan_over_critical_path"],
            "speedup_on_2_slots": SUITE.ratio("mean_s", "sequential", policy, 2.0, seeds, short),
        }
        if policy != "critical_path":
            even = SUITE.figures(policy + EVEN, 32.0, seeds, short)
            out[policy]["makespan_over_critical_path_even_tasks"] = even["makespan_over_critical_path"]
    return out

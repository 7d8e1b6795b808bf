"""Run a workload: real schedulers over simulated replicas, in simulated time.

Schedulers see what a real one sees, when it would: a call once its parents have ended and its tool delay has passed, a
finished call once the replica's answer has travelled back, a report once it has been sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from swarmx.sim.clock import Clock
from swarmx.sim.cluster import Cluster, Fault, ReplicaSpec
from swarmx.sim.contracts import NO_DELAY, Arm, SimulatedScheduler, Timing
from swarmx.sim.exchange import Exchange
from swarmx.sim.flows import Flows
from swarmx.sim.periods import Periods
from swarmx.sim.pool import Pool
from swarmx.sim.replicas import Replica
from swarmx.sim.replicas_batched import BatchedReplica
from swarmx.sim.replicas_job import JobReplica
from swarmx.sim.results import CallRows, CallTable
from swarmx.sim.workload import Workload


class Control(Protocol):
    """Something that changes the replicas while the simulation runs, such as a scaler; it plans its own steps."""

    def begin(self, clock: Clock, pools: Mapping[str, Pool], exchange: Exchange, periods: Periods) -> None: ...


Schedulers = SimulatedScheduler | Mapping[str, SimulatedScheduler | Sequence[SimulatedScheduler]]


def simulate(
    workload: Workload,
    cluster: Cluster,
    schedulers: Schedulers,
    arm: Arm | None = None,
    timing: Timing = NO_DELAY,
    *,
    router_of: Literal["random", "workflow"] = "random",
    seed: int = 0,
    control: Control | None = None,
) -> CallTable:
    """Run the workload to its end and return what happened to every call.

    schedulers : one object for a cluster with one model, else model -> object; a sequence of objects is as many
        routers that share the model's replicas and see each other only through reports
    router_of : which of several routers gets a call: any (by `seed`), or always the same for a workflow
    A call that fails `timing.retries` + 1 times, or is rejected, ends its workflow; both are left out of latencies but
    counted. The same arguments give the same table.
    Raises ValueError when a model of the workload has no scheduler or replica, RuntimeError when a scheduler starts
    an unknown call or replica, or never starts a call that could run.
    """
    clock = Clock()
    replicas = [replica_of(spec, index) for index, spec in enumerate(cluster.replicas)]
    pools = _pools(workload, cluster, replicas, schedulers)
    rows = CallRows(workload.call_count)
    flows = Flows(workload, pools, rows, clock, router_of == "workflow", seed)
    exchange = Exchange(flows, clock, arm, timing)
    periods = Periods(exchange)
    flows.submit, exchange.start_periods = exchange.submit, periods.start
    by_id = {r.spec.id: r for r in replicas}
    starts = [Fault(s.ready_s, s.id, "up") for s in cluster.replicas if s.ready_s > 0]
    for fault in (*starts, *cluster.faults):
        replica = by_id[fault.replica]
        clock.at(fault.time_s, periods.fault, (fault, replica, pools[replica.spec.model]))
    for pool in pools.values():
        periods.announce(pool)
    if control is not None:
        control.begin(clock, pools, exchange, periods)
    clock.at(workload.workflows[0].arrival_s, flows.begin, 0)
    clock.run()
    _settle(pools)
    return rows.table(workload, cluster)


def replica_of(spec: ReplicaSpec, index: int) -> Replica:
    """A replica, empty; `index` is its place among all of the run."""
    replica: Replica = BatchedReplica(spec, index) if spec.batched else JobReplica(spec, index)
    replica.up = spec.ready_s <= 0
    return replica


def _pools(
    workload: Workload, cluster: Cluster, replicas: Sequence[Replica], schedulers: Schedulers
) -> dict[str, Pool]:
    models = cluster.models()
    if not isinstance(schedulers, Mapping):
        if len(models) != 1:
            raise ValueError(f"one scheduler serves one model, this cluster has {models}; pass a mapping")
        schedulers = {models[0]: schedulers}
    missing = {c.model for w in workload.workflows for c in w.calls} - (set(schedulers) & set(models))
    if missing:
        raise ValueError(f"no scheduler or no replica for {sorted(missing)}; the cluster serves {sorted(models)}")
    pools = {}
    for model in models:
        group = schedulers.get(model)
        if group is None:
            raise ValueError(f"no scheduler for model {model!r} of the cluster")
        pools[model] = Pool(
            [r for r in replicas if r.spec.model == model], group if isinstance(group, Sequence) else (group,)
        )
    return pools


def _settle(pools: Mapping[str, Pool]) -> None:
    """Nothing more will happen: what is still open is a scheduler's doing."""
    held = [call_id for pool in pools.values() for router in pool.routers for call_id in router.jobs]
    if held:
        raise RuntimeError(
            f"{len(held)} calls were never started and nothing more will happen, first {held[0]!r}: the scheduler "
            "holds calls that could run, or no replica can take them and it did not reject them"
        )

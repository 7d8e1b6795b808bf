"""A log that the simulator wrote itself must come back as it was."""

from dataclasses import replace

import numpy as np
import pytest
from small_schedulers import InTurn

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.logs.workflows import workflows_of
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Workload, cluster, simulate
from swarmx.sim.replay import fidelity, resample, sim_workflows, specs_of
from swarmx.types import CallRecord

ENGINE = cluster(ReplicaSpec("r", batched=True, slots=4, service=EngineConstants(0.02, 0.002, 0.0, 1e-4)), [1.0, 0.5])


def a_log():
    """Records of 60 workflows plan -> three workers -> merge on `ENGINE`, whole tokens."""
    rng = np.random.default_rng(1)
    flows = []
    for i in range(60):
        x = rng.integers(5, 80, 5)
        calls = [SimCall("plan", float(x[0]), type="plan", prompt_tokens=40)]
        calls += [SimCall(f"work{k}", float(x[k]), (0,), 0.1, "work", prompt_tokens=60) for k in (1, 2, 3)]
        calls.append(SimCall("merge", float(x[4]), (1, 2, 3), 0.2, "merge", prompt_tokens=90))
        flows.append(SimWorkflow(f"w{i}", float(100 + 1.5 * i), tuple(calls), tenant=f"t{i % 2}"))

    class Keeps(InTurn):
        def __init__(self):
            super().__init__()
            self.records = []

        def finished(self, record, now, retry=False):
            self.records.append(record)
            return []

    scheduler = Keeps()
    workload = Workload(tuple(flows))
    table = simulate(workload, ENGINE, scheduler)
    waits = {f"{f.id}/{c.key}": tuple(f"{f.id}/{f.calls[p].key}" for p in c.parents) for f in flows for c in f.calls}
    records = [
        CallRecord(
            **{
                name: getattr(r, name)
                for name in (
                    "call_id", "model", "arrival_s", "status", "workflow_id", "parent_id", "workflow_arrival_s",
                    "tenant", "priority", "type", "prompt_tokens", "replica", "device", "dispatched_s",
                    "first_token_s", "finished_s", "output_tokens",
                )
            },
            waits_for=waits[r.call_id],
        )
        for r in scheduler.records
    ]  # fmt: skip
    return records, table


def test_a_simulated_log_replays_to_itself():
    records, table = a_log()
    recorded = workflows_of(records)
    for arrivals in ("recorded", "graph"):
        found, again = fidelity(recorded, ENGINE, arrivals=arrivals)
        assert [f.quantity for f in found] == ["call", "first_token", "workflow"]
        assert [f.n for f in found] == [300, 300, 60]
        for figure in found:
            assert figure.ratios == pytest.approx((1.0, 1.0, 1.0), rel=1e-6)
        # times are shifted to start at 0: rounding can swap two calls that arrive at one moment, a token's time apart
        np.testing.assert_allclose(sorted(again.call_latency_s()), sorted(table.call_latency_s()), atol=0.05)


def test_calls_that_a_router_held_are_sent_when_they_were():
    records, _ = a_log()
    held = [replace(r, arrival_s=r.arrival_s - 0.3 * (int(r.workflow_id[1:]) % 4)) for r in records]
    found, _ = fidelity(workflows_of(held), ENGINE)
    for figure in found:
        assert figure.ratios == pytest.approx((1.0, 1.0, 1.0), rel=1e-6)


def test_a_slower_engine_than_recorded_shows_in_the_fidelity():
    records, _ = a_log()
    slow = Cluster(tuple(ReplicaSpec(s.id, batched=True, slots=4, service=EngineConstants(0.04), speed=s.speed)
                         for s in ENGINE.replicas))  # fmt: skip
    found, _ = fidelity(workflows_of(records), slow)
    assert min(found[0].ratios) > 1.2


def test_workflows_of_a_log_keep_graph_delays_and_rows():
    records, _ = a_log()
    flows, rows = sim_workflows(workflows_of(records))
    assert flows[0].arrival_s == 0.0
    assert len(flows) == 60
    assert [c.parents for c in flows[3].calls] == [(), (0,), (0,), (0,), (1, 2, 3)]
    assert flows[3].calls[4].delay_s == pytest.approx(0.2)
    assert flows[3].tenant == "t1"
    for flow in flows:
        for call in flow.calls:
            assert rows[call.record_index].output_tokens == call.output_tokens


def test_resampled_workflows_have_ids_of_their_own():
    flows, _ = sim_workflows(workflows_of(a_log()[0]))
    drawn = resample(flows, 500, np.random.default_rng(2))
    assert len({w.id for w in drawn}) == 500
    assert {w.kind for w in drawn} <= {w.id for w in flows}
    again = resample(flows, 500, np.random.default_rng(2))
    assert drawn == again


def test_an_empty_log_and_an_unknown_replica_are_named():
    with pytest.raises(BadInput, match="no workflow"):
        sim_workflows([])
    recorded = workflows_of(a_log()[0])
    with pytest.raises(BadInput, match="r1"):
        fidelity(recorded, Cluster((ENGINE.replicas[0],)))


def test_replicas_of_a_log_are_copies_of_their_kinds_template():
    records, _ = a_log()
    made = specs_of(records, {"x1": ReplicaSpec("t", slots=4), "x0.5": ReplicaSpec("t", slots=4, speed=0.5)})
    assert [(s.id, s.device, s.speed) for s in made.replicas] == [("r0", "x1", 1.0), ("r1", "x0.5", 0.5)]
    with pytest.raises(BadInput, match=r"x0\.5"):
        specs_of(records, {"x1": ReplicaSpec("t")})

"""What reaches a scheduler and when, and what becomes of its decisions."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from small_schedulers import CentralFcfs, InTurn, Silent

from swarmx.engine import EngineConstants
from swarmx.sim import Cluster, Fault, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, cluster, simulate
from swarmx.sim.arms import Oracle
from swarmx.sim.results import STATUSES
from swarmx.types import CallRecord, Move, Preempt, Reject, Start

DIAMOND = (
    SimCall("plan", 1.0),
    SimCall("left", 2.0, (0,), 0.5),
    SimCall("right", 4.0, (0,)),
    SimCall("merge", 1.0, (1, 2), 0.25),
)


def lone(n=1, tokens=1.0, every=0.0):
    return Workload(tuple(SimWorkflow(f"w{i}", every * i, (SimCall("c", tokens),)) for i in range(n)))


def statuses(table):
    return [STATUSES[s] for s in table.status]


def test_a_call_is_revealed_when_its_last_parent_has_ended_and_its_tool_is_done():
    scheduler = InTurn()
    table = simulate(Workload((SimWorkflow("w", 10.0, DIAMOND),)), cluster(ReplicaSpec("r"), [1.0, 1.0]), scheduler)
    arrivals = {name: t for kind, name, t in scheduler.seen if kind == "arrive"}
    assert arrivals == {"w/plan": 10.0, "w/left": 11.5, "w/right": 11.0, "w/merge": 15.25}
    assert table.workflow_latency_s() == pytest.approx([6.25])


def test_the_scheduler_hears_of_nothing_before_it_happens():
    """Every message about a call carries a time that has passed, in order."""
    scheduler = InTurn()
    flows = tuple(SimWorkflow(f"w{i}", 0.7 * i, DIAMOND) for i in range(20))
    simulate(Workload(flows), cluster(ReplicaSpec("r"), [1.0, 0.5]), scheduler)
    times = [t for _, _, t in scheduler.seen]
    assert times == sorted(times)
    heard = {}
    for kind, name, t in scheduler.seen:
        heard.setdefault(name, {})[kind] = t
    for name, when in heard.items():
        assert when["arrive"] <= when["started"] <= when["ok"]
        flow, key = name.split("/")
        for parent in DIAMOND[[c.key for c in DIAMOND].index(key)].parents:
            assert heard[f"{flow}/{DIAMOND[parent].key}"]["ok"] <= when["arrive"]


def test_each_delay_adds_its_time_once():
    timing = Timing(network_s=0.1, decision_s=0.02)
    table = simulate(lone(), cluster(ReplicaSpec("r"), [1.0]), InTurn(), timing=timing)
    assert table.dispatched_s[0] == pytest.approx(0.02)
    assert table.started_s[0] == pytest.approx(0.12)
    assert table.finished_s[0] == pytest.approx(1.22)


def test_a_late_prediction_comes_through_predicted():
    class Waits(Silent):
        def __init__(self):
            self.given = []

        def arrive(self, call, prediction, now):
            self.given.append(prediction)
            return []

        def predicted(self, call_id, prediction, now):
            self.given.append((now, float(prediction.tokens.mean())))
            return [Start(call_id, "r0")]

    scheduler = Waits()
    simulate(lone(tokens=3.0), cluster(ReplicaSpec("r"), [1.0]), scheduler, Oracle(), Timing(prediction_s=0.5))
    assert scheduler.given == [None, (0.5, pytest.approx(3.0))]


def test_progress_and_reports_come_at_their_periods_and_stop_with_the_work():
    class Watches(InTurn):
        def __init__(self):
            super().__init__()
            self.tokens, self.running = [], []

        def progress(self, call_id, tokens, now):
            self.tokens.append((now, tokens))
            return []

        def replicas_changed(self, states, now):
            self.running.append((now, states[0].running, states[0].reported_s))
            return super().replicas_changed(states, now)

    scheduler = Watches()
    timing = Timing(progress_period_s=1.0, report_period_s=2.0, report_delay_s=0.5)
    simulate(lone(tokens=4.7), cluster(ReplicaSpec("r"), [1.0]), scheduler, timing=timing)
    assert scheduler.tokens == [(t, pytest.approx(t)) for t in (1.0, 2.0, 3.0, 4.0)]
    assert scheduler.running == [(0.0, 0, 0.0), (2.5, 1, 2.0), (4.5, 1, 4.0)]


def test_ticks_come_while_calls_are_open():
    class Ticks(Silent):
        tick_s = 0.25

        def __init__(self):
            self.held, self.ticks = None, []

        def arrive(self, call, prediction, now):
            self.held = call.id
            return []

        def tick(self, now):
            self.ticks.append(now)
            if now == 1.0:
                return [Start(self.held, "r0")]
            return []

    scheduler = Ticks()
    table = simulate(lone(tokens=0.6), cluster(ReplicaSpec("r"), [1.0]), scheduler)
    assert table.started_s[0] == 1.0
    assert scheduler.ticks == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5]


def test_calls_of_a_dead_replica_run_elsewhere():
    specs = (ReplicaSpec("a"), ReplicaSpec("b"))
    faults = (Fault(1.0, "b", "down", detect_s=100.0),)
    table = simulate(lone(2, tokens=3.0), Cluster(specs, faults), InTurn())
    assert statuses(table) == ["ok", "ok"]
    assert table.replica.tolist() == [0, 0]
    assert sorted(table.attempts.tolist()) == [1, 3]  # the dead replica is tried once more: nobody told
    assert sorted(table.finished_s) == pytest.approx([3.0, 6.0])


def test_an_announced_loss_gives_the_calls_back_without_an_error():
    class TakesBack(InTurn):
        def replicas_changed(self, states, now):
            super().replicas_changed(states, now)
            return self.send("w0/c") if now > 0 else []

    scheduler = TakesBack()
    specs = (ReplicaSpec("a"), ReplicaSpec("b"))
    table = simulate(lone(tokens=3.0), Cluster(specs, (Fault(1.0, "b", "down"),)), scheduler)
    assert [kind for kind, _, _ in scheduler.seen] == ["arrive", "started", "started", "ok"]
    assert table.replica[0] == 0
    assert table.attempts[0] == 2
    assert table.finished_s[0] == pytest.approx(4.0)


def test_a_call_that_fails_too_often_ends_its_workflow():
    faults = (Fault(0.5, "r", "down", detect_s=1e6),)
    workload = Workload((SimWorkflow("w", 0.0, DIAMOND), SimWorkflow("v", 50.0, (SimCall("c", 1.0),))))
    table = simulate(workload, Cluster((ReplicaSpec("r"),), faults), InTurn(), timing=Timing(retries=2))
    assert statuses(table) == ["error", "unfinished", "unfinished", "unfinished", "error"]
    assert table.attempts[0] == 3
    assert not table.workflow_ok().any()
    assert table.workflow_latency_s().size == 0


def test_a_cold_replica_is_unseen_until_it_is_ready():
    specs = (ReplicaSpec("warm"), ReplicaSpec("cold", ready_s=5.0))
    scheduler = CentralFcfs()
    table = simulate(lone(4, tokens=4.0), Cluster(specs), scheduler)
    on_cold = table.started_s[table.replica == 1]
    assert on_cold.size
    assert on_cold.min() == 5.0


def test_a_hidden_slowdown_changes_times_and_no_reported_speed():
    class Speeds(InTurn):
        def __init__(self):
            super().__init__()
            self.speeds = []

        def replicas_changed(self, states, now):
            self.speeds.append(states[0].speed)
            return super().replicas_changed(states, now)

    scheduler = Speeds()
    faults = (Fault(1.0, "r", "speed", 0.25),)
    timing = Timing(report_period_s=1.0)
    table = simulate(lone(tokens=2.0), Cluster((ReplicaSpec("r"),), faults), scheduler, timing=timing)
    assert table.finished_s[0] == pytest.approx(5.0)
    assert set(scheduler.speeds) == {1.0}


def test_a_full_replica_that_starts_only_if_free_refuses():
    class Asks(InTurn):
        def refused(self, call_id, state, now):
            self.seen.append(("refused", call_id, state.running))
            self.later = call_id
            return []

        def finished(self, record, now, retry=False):
            return self.send(self.later) if record.call_id != self.later else []

    scheduler = Asks()
    table = simulate(lone(2, tokens=2.0), cluster(ReplicaSpec("r", start_if_free=True), [1.0]), scheduler)
    assert ("refused", "w1/c", 1) in scheduler.seen
    assert table.finished_s.tolist() == pytest.approx([2.0, 4.0])


def test_several_routers_share_replicas_and_hear_of_their_own_calls_only():
    routers = [InTurn(), InTurn(), InTurn()]
    table = simulate(lone(300, every=0.1), cluster(ReplicaSpec("r"), [1.0] * 12), {"model": routers}, seed=4)
    names = [{name for _, name, _ in r.seen} for r in routers]
    assert sum(len(n) for n in names) == len(set.union(*names)) == 300
    assert min(len(n) for n in names) > 60
    assert table.ok.all()


def test_workflows_can_stay_with_one_router():
    routers = [InTurn(), InTurn()]
    flows = tuple(SimWorkflow(f"w{i}", float(i), DIAMOND) for i in range(10))
    simulate(Workload(flows), cluster(ReplicaSpec("r"), [1.0] * 4), {"model": routers}, router_of="workflow")
    for place, router in enumerate(routers):
        assert {int(name.split("/")[0][1:]) % 2 for _, name, _ in router.seen} == {place}


def test_two_models_have_two_pools():
    calls = (SimCall("a", 1.0, model="small"), SimCall("b", 1.0, (0,), model="large"))
    specs = (ReplicaSpec("s", model="small"), ReplicaSpec("l", model="large", speed=0.5))
    table = simulate(Workload((SimWorkflow("w", 0.0, calls),)), Cluster(specs), {"small": InTurn(), "large": InTurn()})
    assert table.replica.tolist() == [0, 1]
    assert table.finished_s.tolist() == pytest.approx([1.0, 3.0])


def test_preempted_and_moved_calls_keep_their_tokens():
    class Moves(InTurn):
        tick_s = 1.0

        def arrive(self, call, prediction, now):
            return [Start(call.id, "r0")]

        def tick(self, now):
            if now == 1.0:
                return [Preempt("w0/c", "r0", "test")]
            if now == 2.0:
                return [Start("w0/c", "r1")]
            return [Move("w0/c", "r1", "r0", "test")] if now == 3.0 else []

    table = simulate(lone(tokens=4.0), cluster(ReplicaSpec("r"), [1.0, 1.0]), Moves(), timing=Timing(move_s=0.5))
    # one second on r0, a pause of one, one second on r1, half a second of moving, two seconds on r0
    assert table.finished_s[0] == pytest.approx(5.5)
    assert table.replica[0] == 0


def test_a_rejected_call_ends_there():
    class Rejects(Silent):
        def arrive(self, call, prediction, now):
            return [Reject(call.id, "test")]

    table = simulate(Workload((SimWorkflow("w", 0.0, DIAMOND),)), cluster(ReplicaSpec("r"), [1.0]), Rejects())
    assert statuses(table) == ["rejected", *["unfinished"] * 3]
    assert table.figures()["failed_calls"] == 4


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Start("other", "r0"), "ended or never arrived"),
        (Start("w0/c", "nowhere"), "unknown replica"),
    ],
)
def test_a_decision_that_makes_no_sense_is_named(decision, words):
    class Confused(Silent):
        def arrive(self, call, prediction, now):
            return [decision]

    with pytest.raises(RuntimeError, match=words):
        simulate(lone(), cluster(ReplicaSpec("r"), [1.0]), Confused())


def test_a_scheduler_that_never_starts_a_call_is_found_out():
    class Sleeps(Silent):
        tick_s = 1.0

    with pytest.raises(RuntimeError, match="holds 1 calls"):
        simulate(lone(), cluster(ReplicaSpec("r"), [1.0]), Sleeps())


def test_a_model_without_replicas_is_named():
    workload = Workload((SimWorkflow("w", 0.0, (SimCall("c", 1.0, model="huge"),)),))
    with pytest.raises(ValueError, match="huge"):
        simulate(workload, cluster(ReplicaSpec("r"), [1.0]), InTurn())


def test_the_record_of_a_finished_call_is_a_plain_one_in_all_respects():
    class Keeps(InTurn):
        def finished(self, record, now, retry=False):
            self.record = record
            return []

    scheduler = Keeps()
    spec = ReplicaSpec("r", batched=True, slots=2, service=EngineConstants(0.1, 0, 0, 0.01), device="gpu")
    flow = SimWorkflow("w", 1.0, (SimCall("c", 5.4, type="t", prompt="hi", prompt_tokens=20, group="g"),))
    simulate(Workload((flow,)), Cluster((spec,)), scheduler)
    record = scheduler.record
    assert isinstance(record, CallRecord)
    plain = CallRecord(**{f.name: getattr(record, f.name) for f in fields(CallRecord)})
    assert type(plain) is CallRecord
    assert pickle.loads(pickle.dumps(record)) == plain
    assert replace(record, device="cpu") == replace(plain, device="cpu")
    assert (plain.call_id, plain.device, plain.output_tokens, plain.type) == ("w/c", "gpu", 5, "t")
    assert (plain.prompt, plain.prompt_group, plain.prompt_tokens) == ("hi", "g", 20)
    assert plain.first_token_s == pytest.approx(1.2)
    assert plain.finished_s == pytest.approx(1.2 + 4.4 * 0.1)
    assert (plain.running_at_dispatch, plain.waiting_at_dispatch) == (0, 0)


def test_same_seed_same_table_with_everything_switched_on():
    flows = tuple(SimWorkflow(f"w{i}", 0.2 * i, DIAMOND) for i in range(50))
    faults = (Fault(4.0, "r0", "speed", 0.5),)
    specs = tuple(ReplicaSpec(f"r{i}", slots=2) for i in range(3))
    timing = Timing(0.01, 0.01, 0.02, 0.5, 0.1, 0.3)

    def one():
        routers = {"model": [InTurn(), InTurn()]}
        return simulate(Workload(flows), Cluster(specs, faults), routers, Oracle(), timing, seed=3)

    first, second = one(), one()
    assert first.ok.all()
    np.testing.assert_array_equal(first.finished_s, second.finished_s)

"""When running calls make way, what that costs, and that nothing is lost by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.migration import Migration, Stealing
from swarmx.preemption import Costs, Place, Preemption, Running, Wanting
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, simulate
from swarmx.sim.arms import Oracle
from swarmx.types import Call, CallRecord, Move, Prediction, Preempt, ReplicaState, Start

ENGINE = EngineConstants(0.02, 0.0005, 0.0, 0.0001)
KNOWN = {"default": ENGINE}


def sure(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


def place(**more: object) -> Place:
    return Place(**{"slots": 1, "running": 1, "room": 1e6, "longest": 1e6, "tau_s": 0.02, "prefill_s": 1e-4} | more)  # type: ignore[arg-type]


def running(name: str, replica: int = 0, level: int = 2, **more: object) -> Running:
    base = {
        "call_id": name, "replica": replica, "tenant": "t", "level": level, "key": (level, 0.0, 0.0, name),
        "prompt": 100.0, "age": 50.0, "rest": 2000.0, "held": 1000.0, "interrupted": 0, "started_s": 0.0,
    }  # fmt: skip
    return Running(**base | more)  # type: ignore[arg-type]


def wanting(name: str = "urgent", level: int = 0, **more: object) -> Wanting:
    base = {
        "call_id": name, "tenant": "u", "level": level, "key": (level, 1.0, 1.0, name), "prompt": 50.0, "need": 75.0,
        "since_s": 1.0, "due_s": None,
    }  # fmt: skip
    return Wanting(**base | more)  # type: ignore[arg-type]


def test_an_urgent_call_takes_the_place_that_costs_least() -> None:
    found = list(
        Preemption().decide([wanting()], [running("old", 0, age=1500.0), running("young", 1)], [place(), place()], 2.0)
    )
    assert [(d.replica, d.victims) for d in found] == [(1, ("young",))]


def test_nothing_makes_way_when_waiting_is_cheaper() -> None:
    soon = [running("nearly done", rest=1.0, age=1900.0)]
    assert not list(Preemption().decide([wanting()], soon, [place(prefill_s=0.001)], 2.0))


def test_equals_and_better_calls_never_make_way() -> None:
    for level in (0, 1):
        assert not list(Preemption().decide([wanting(level=1)], [running("r", level=level)], [place()], 2.0))


def test_a_call_is_interrupted_at_most_so_often() -> None:
    assert not list(Preemption(most=2).decide([wanting()], [running("r", interrupted=2)], [place()], 2.0))


def test_a_stale_replica_is_unknown_not_idle() -> None:
    calls = [running("a", 0), running("b", 1, age=900.0)]
    (found,) = Preemption().decide([wanting()], calls, [place(known=False), place()], 2.0)
    assert found.replica == 1
    assert not list(Preemption().decide([wanting()], calls, [place(known=False), place(known=False)], 2.0))


def test_several_calls_make_way_when_one_does_not_free_enough_memory() -> None:
    calls = [running(f"r{i}", held=300.0, age=float(i)) for i in range(4)]
    (found,) = Preemption().decide([wanting(need=550.0)], calls, [place(slots=8, running=4, room=0.0)], 2.0)
    assert found.victims == ("r0", "r1")


def test_a_tenant_takes_back_only_its_own_lent_slots() -> None:
    calls = [running(f"r{i}", i, level=1) for i in range(4)]
    rules = Preemption(rules=("quota",), quotas={"u": 0.5, "t": 0.5}, look=8)
    wants = [wanting(f"w{i}", level=1) for i in range(4)]
    assert len(list(rules.decide(wants[:1], calls, [place()] * 4, 2.0))) == 1
    held = [running(f"u{i}", i, level=1, tenant="u") for i in range(2)] + calls[2:]
    assert not list(rules.decide(wants, held, [place()] * 4, 2.0))


def test_a_call_that_was_due_long_takes_the_place_of_later_ones_that_went_before_it() -> None:
    rules = Preemption(rules=("backfill",), backfill_s=10.0)
    later = running("later", level=1, key=(1, 5.0, 5.0, "later"), started_s=6.0)
    call = wanting(level=1, key=(1, 1.0, 1.0, "w"), due_s=4.0)
    assert not list(rules.decide([call], [later], [place()], 12.0))
    assert [d.victims for d in rules.decide([call], [later], [place()], 15.0)] == [("later",)]


def test_a_time_slice_ends_only_after_its_tokens() -> None:
    rules = Preemption(rules=("slice",), slice_tokens=100.0)
    assert not list(rules.decide([wanting(level=1)], [running("r", level=1, age=99.0)], [place()], 2.0))
    assert list(rules.decide([wanting(level=1)], [running("r", level=1, age=100.0)], [place()], 2.0))


@given(st.floats(1, 1e5), st.floats(0, 1e5), st.floats(1e-3, 0.2), st.floats(1e-6, 1e-2))
def test_costs_grow_with_what_is_lost(prompt: float, age: float, tau: float, prefill: float) -> None:
    for resume in ("recompute", "cancel", "checkpoint"):
        costs = Costs(resume=resume)  # type: ignore[arg-type]
        assert costs.preempt_s(prompt, age, tau, prefill) <= costs.preempt_s(prompt, age + 10, tau, prefill)


def test_a_migration_stands_still_for_the_last_round_alone() -> None:
    copying, stall = Costs(kv_bytes=131_072, bandwidth=1e9, pause_s=0.02).move_s(8000, 0.03)
    assert copying > 1.0
    assert stall < 0.03


def busy(mode: str) -> tuple[Workload, Cluster, object]:
    """Batch work that fills two engines, urgent calls in between."""
    rng = np.random.default_rng(4)
    flows = [
        SimWorkflow(f"b{i}", i * 3.0, (SimCall("c", 2000.0, prompt_tokens=200),), "batch", "low") for i in range(30)
    ]
    flows += [
        SimWorkflow(f"u{i}", float(t), (SimCall("c", 50.0, prompt_tokens=50),), "urgent", "high")
        for i, t in enumerate(rng.uniform(5, 120, 60))
    ]
    flows.sort(key=lambda w: w.arrival_s)
    specs = tuple(
        ReplicaSpec(f"r{i}", batched=True, slots=4, service=ENGINE, kv_capacity_tokens=20_000) for i in range(2)
    )
    rules = {
        "none": {},
        "priority": {"preemption": Preemption()},
        "any": {"preemption": Preemption(most=50)},
        "cancel": {"preemption": Preemption(costs=Costs(resume="cancel"))},
        "slice": {"preemption": Preemption(rules=("slice",), slice_tokens=300.0, most=5)},
        "migration": {"migration": Migration(hot=0.3, cold=0.29)},
    }[mode]
    return Workload(tuple(flows)), Cluster(specs), preset("late", engines=KNOWN, **rules)


@pytest.mark.parametrize("mode", ["none", "priority", "cancel", "slice", "migration"])
def test_interrupted_work_is_never_lost(mode: str) -> None:
    workload, cluster, scheduler = busy(mode)
    table = simulate(workload, cluster, scheduler, Oracle(), Timing(progress_period_s=0.5))  # type: ignore[arg-type]
    assert table.ok.all()
    assert table.output_tokens.sum() == pytest.approx(sum(c.output_tokens for c in workload.calls()))
    assert not scheduler.cluster.flights  # type: ignore[attr-defined]
    accounts = scheduler.observers.ledger.accounts()  # type: ignore[attr-defined]
    assert accounts["batch"].finished == 30
    agents = scheduler.observers.agents.accounts()  # type: ignore[attr-defined]
    ids = {w.id: w.tenant for w in workload.workflows}
    for tenant, account in accounts.items():
        mine = [agent for name, agent in agents.items() if ids[name] == tenant]
        assert sum(a.finished for a in mine) == account.finished
        assert sum(a.tokens for a in mine) == pytest.approx(account.tokens)
        assert max(a.worst_wait_s for a in mine) == pytest.approx(account.worst_wait_s)
    assert (accounts["batch"].interrupted > 0) == (mode in ("priority", "cancel", "slice"))


def test_preemption_bounds_the_wait_of_urgent_calls() -> None:
    waits = {}
    for mode in ("none", "any"):
        workload, cluster, scheduler = busy(mode)
        table = simulate(workload, cluster, scheduler, Oracle(), Timing(progress_period_s=0.5))  # type: ignore[arg-type]
        urgent = np.array([w.tenant == "urgent" for w in workload.workflows])
        waits[mode] = (table.started_s - table.arrival_s)[urgent].max()
    assert waits["none"] > 5.0
    assert waits["any"] < 1.0


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), most=st.integers(0, 3))
def test_no_call_is_preempted_more_often_than_the_cap(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    scheduler = preset("late", engines={"d": EngineConstants(1.0)}, preemption=Preemption(most=most))
    states = [ReplicaState(f"r{i}", "m", "d") for i in range(2)]
    decisions = scheduler.replicas_changed(states, 0.0)
    counts: dict[str, int] = {}
    on: dict[str, str] = {}
    now = 0.0

    def carry_out(decisions: list) -> None:  # type: ignore[type-arg]
        for decision in decisions:
            if isinstance(decision, Preempt):
                assert on.pop(decision.call_id) == decision.replica
                counts[decision.call_id] = counts.get(decision.call_id, 0) + 1
            else:
                assert isinstance(decision, Start)
                assert decision.call_id not in on
                on[decision.call_id] = decision.replica

    carry_out(decisions)
    for i in range(40):
        now += 1.0
        priority = ("high", "normal", "low")[int(rng.integers(3))]
        call = Call(f"c{i}", "m", now, prompt_tokens=5, priority=priority)  # type: ignore[arg-type]
        carry_out(scheduler.arrive(call, sure(float(rng.integers(1, 60))), now))
        if on and rng.random() < 0.3:
            name = sorted(on)[0]
            del on[name]
            carry_out(scheduler.finished(CallRecord(name, "m", 0.0, "ok", output_tokens=9), now))
    assert all(count <= most for count in counts.values())


def test_waiting_calls_are_stolen_by_an_idle_replica_oldest_first() -> None:
    scheduler = preset("push", engines={"d": EngineConstants(1.0)}, stealing=Stealing())
    scheduler.replicas_changed([ReplicaState("r0", "m", "d"), ReplicaState("r1", "m", "d", draining=True)], 0.0)
    for i in range(4):
        scheduler.arrive(Call(f"c{i}", "m", float(i)), sure(100.0), float(i))
    scheduler.replicas_changed([ReplicaState("r0", "m", "d"), ReplicaState("r1", "m", "d")], 4.0)
    moves = [d for t in (4.0, 4.5, 5.0, 5.5) for d in scheduler.tick(t) if isinstance(d, Move)]
    assert [(m.call_id, m.target) for m in moves] == [("c1", "r1")]
    flights = scheduler.cluster.flights
    assert flights["c1"].replica == "r1"
    assert flights["c0"].replica == "r0"

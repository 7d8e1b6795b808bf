"""What a better class waits for has that class, over any number of steps, and only for as long as it is waited for."""

from __future__ import annotations

from swarmx.engine import EngineConstants
from swarmx.inheritance import Inheritance
from swarmx.preemption import Preemption
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, CallRecord, Prediction, Preempt, ReplicaState, Start


def sure(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


def call(name: str, workflow: str, priority: str, parent: str | None = None) -> Call:
    return Call(name, "m", 0.0, workflow_id=workflow, priority=priority, parent_id=parent)  # type: ignore[arg-type]


def test_a_helper_has_the_class_of_its_workflow_and_of_its_parents_workflow() -> None:
    known = Inheritance()
    known.arrived(call("root", "urgent", "high"))
    helper = call("helper", "urgent", "low")
    sub = call("sub", "other", "low", parent="root")
    for one in (helper, sub):
        known.arrived(one)
        assert known.level(one) == 0
    assert known.level(call("stranger", "third", "low")) == 2


def test_classes_travel_along_chains_of_waiting_and_cycles_do_no_harm() -> None:
    known = Inheritance()
    known.arrived(call("u", "urgent", "high"))
    last = call("z", "c", "low")
    for name, workflow in (("x", "a"), ("y", "b"), ("z", "c")):
        known.arrived(call(name, workflow, "low"))
    known.waits("urgent", "a")
    known.waits("a", "b")
    known.waits("b", "c")
    known.waits("c", "a")
    assert known.level(last) == 0
    known.gone("urgent")
    assert known.level(last) == 2


def test_a_waiting_call_moves_up_when_an_urgent_workflow_waits_for_it() -> None:
    scheduler = preset("late", engines={"d": EngineConstants(1.0)}, inherits=True)
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    scheduler.arrive(call("runs", "w", "normal"), sure(10), 0.0)
    for i in range(3):
        scheduler.arrive(call(f"n{i}", f"w{i}", "normal"), sure(10), 0.0)
    scheduler.arrive(call("index", "shared", "low"), sure(10), 0.0)
    scheduler.arrive(call("ask", "urgent", "high"), sure(1), 0.0)
    scheduler.waits("urgent", "index", 1.0)
    ended = scheduler.finished(CallRecord("runs", "m", 0.0, "ok", output_tokens=10), 10.0)
    assert [d.call_id for d in ended if isinstance(d, Start)] == ["ask"]
    ended = scheduler.finished(CallRecord("ask", "m", 0.0, "ok", output_tokens=1), 11.0)
    assert [d.call_id for d in ended if isinstance(d, Start)] == ["index"]


def test_a_running_call_that_inherited_is_not_preempted_by_its_new_equals() -> None:
    scheduler = preset("late", engines={"d": EngineConstants(1.0)}, inherits=True, preemption=Preemption())
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    scheduler.arrive(call("index", "shared", "low"), sure(1000), 0.0)
    scheduler.waits("urgent", "shared", 0.0)
    decisions = scheduler.arrive(call("u", "urgent", "high"), sure(1), 1.0)
    decisions += scheduler.arrive(call("v", "second", "high"), sure(1), 2.0)
    assert not any(isinstance(d, Preempt) for d in decisions)

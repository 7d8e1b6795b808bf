"""Parts of a scheduler spelled as plain data: what is right is built, what is wrong is named with its place."""

from __future__ import annotations

from typing import Any

import pytest

from swarmx.admission import Admission, Rate
from swarmx.config import parse_config
from swarmx.errors import BadInput
from swarmx.ordering import ORDERS
from swarmx.ordering.fair_share import FairShare
from swarmx.preemption import Costs, Preemption
from swarmx.presets import PRESETS, preset
from swarmx.types import Call, Reject, ReplicaState, Start

WHOLE = """
model_pools: {m: {replicas: [{url: 'http://a:1'}]}}
scheduler:
  preset: late
  options:
    order: {kind: fair_share, weights: {gold: 4}, floors: {nightly: 0.2}, charge: tokens}
    classes: {nightly: low, gold: high}
    aging: {hold_s: [30, 60, .inf], share: 0.1}
    reserve: {slots: {high: 0.125}, replicas: {'a:1': normal}}
    preemption: {rules: [priority, backfill], costs: {resume: checkpoint}, most: 3}
    migration: {hot: 0.9}
    admission: {class_caps: {low: 500}, rates: {free: {per_s: 2000, burst: 20000}}, stall_s: 120}
    inherits: true
"""


def test_a_file_can_set_every_part() -> None:
    settings = parse_config(WHOLE).scheduler
    for _ in range(2):  # the settings are not used up
        parts = preset(settings.preset, **settings.options).parts
    assert isinstance(parts.order, FairShare)
    assert parts.order.weights == {"gold": 4} and parts.order.floors == {"nightly": 0.2}
    assert parts.preemption == Preemption(("priority", "backfill"), Costs("checkpoint"), most=3)
    assert parts.admission == Admission({"low": 500}, rates={"free": Rate(2000, 20000)}, stall_s=120)
    assert parts.aging is not None and parts.aging.hold_s == (30, 60, float("inf")) and parts.aging.overtakes == 64
    assert parts.reserve is not None and parts.reserve.slots == {"high": 0.125}
    assert parts.inherits and parts.classes == {"nightly": "low", "gold": "high"}


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_can_be_named_with_its_kind(name: str) -> None:
    assert type(preset("late", order={"kind": name}).parts.order) is type(ORDERS[name]())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_takes_classes_admission_and_preemption(name: str) -> None:
    scheduler = preset(name, classes={"t": "low"}, admission={"class_caps": {"low": 1}}, preemption={})
    assert isinstance(scheduler.parts.preemption, Preemption)
    scheduler.replicas_changed([], 0.0)
    scheduler.arrive(Call("a", "m", 0.0, tenant="t"), None, 0.0)
    (refused,) = scheduler.arrive(Call("b", "m", 0.0, tenant="t"), None, 0.0)
    assert isinstance(refused, Reject) and "class low" in refused.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ordr": "fcfs"}, "unknown option 'ordr' (did you mean 'order'?); known are order, binding"),
        ({"order": {"kind": "fair"}}, "order.kind: unknown 'fair'"),
        ({"order": {"kind": "fair_share", "wieghts": {}}}, "order: unknown option 'wieghts' (did you mean 'weights'?)"),
        ({"order": {"kind": "fair_share", "weights": {"a": "x"}}}, "order.weights.a: input should be a valid number"),
        ({"order": {"kind": "fair_share", "weights": {"a": -1}}}, "order: weights must be positive"),
        ({"order": {"kind": "ready_list", "graphs": {}}}, "order: unknown option 'graphs'"),
        ({"admission": {"class_caps": {"urgent": 1}}}, "admission.class_caps.urgent: input should be 'high'"),
        ({"admission": {"rates": {"a": {"per_s": 0, "burst": 1}}}}, "admission.rates.a: a rate needs per_s > 0"),
        ({"admission": {"rates": {"a": {"rate": 1}}}}, "admission.rates.a: unknown option 'rate'"),
        ({"admission": {"class_caps": {"low": -1}}}, "admission: caps must not be negative"),
        ({"preemption": True}, "preemption: give its options"),
        ({"preemption": {"rules": ["urgency"]}}, "preemption.rules.0: input should be 'priority'"),
        ({"aging": {"share": 0}}, "aging: share must be in (0, 1]"),
        ({"hold_s": [1, 2]}, "aging.hold_s.2: field required"),
        ({"reserve": {"slots": {"high": 2}}}, "reserve: reserved shares of slots"),
        ({"classes": {"a": "urgent"}}, "classes.a: input should be 'high'"),
        ({"inherits": "perhaps"}, "inherits: input should be a valid boolean"),
        ({"placement": "random"}, "placement cannot be set here"),
        ({"work_weight": 1, "order": "fcfs"}, "give work_weight inside order"),
    ],
)
def test_a_wrong_option_is_named_with_its_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as problem:
        preset("late", **options)
    assert str(problem.value).startswith(message)


def test_a_class_that_was_given_stands_above_what_a_call_says() -> None:
    scheduler = preset("central_fcfs", classes={"nightly": "low", "chat": "high"})
    scheduler.replicas_changed([ReplicaState("r", "m")], 0.0)
    assert isinstance(scheduler.arrive(Call("a", "m", 0.0), None, 0.0)[0], Start)
    scheduler.arrive(Call("b", "m", 1.0, tenant="nightly", priority="high"), None, 1.0)
    scheduler.arrive(Call("c", "m", 2.0, tenant="nightly", type="chat"), None, 2.0)
    assert [w.call.id for w in scheduler.queue] == ["c", "b"]
    assert [w.call.priority for w in scheduler.queue] == ["high", "low"]

"""The starvation tier: its dispatch bound, searched for violations with arrivals, classes, failures, replicas."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.ordering import Aging
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.priority import Priority
from swarmx.ordering.sjf import Sjf
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import PRIORITIES, Call, CallRecord, Prediction, ReplicaState, Start

HOLD_S = (4.0, 9.0, 20.0)


def world(order: str, share: float) -> Scheduler:
    made = {
        "fcfs": Fcfs, "priority": lambda: Priority(hold_s=HOLD_S), "sjf": Sjf,
        "fair_share": lambda: FairShare(floors={"a": 0.2}, charge="calls"),
    }[order]()  # fmt: skip
    aging = Aging(overtakes=2**62, hold_services=inf, hold_s=HOLD_S, share=share, tenant_services=inf)
    return preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order=made, aging=aging, tier="neural")


@settings(max_examples=60, deadline=None)
@given(
    order=st.sampled_from(["fcfs", "priority", "sjf", "fair_share"]),
    seed=st.integers(0, 10**6),
    replicas=st.integers(1, 4),
)
def test_no_call_starts_before_one_that_came_due_earlier(order: str, seed: int, replicas: int) -> None:
    rng = np.random.default_rng(seed)
    scheduler = world(order, 1.0)
    states = [ReplicaState(f"r{i}", "m", "d") for i in range(replicas)]
    due: dict[str, float] = {}  # waiting call -> when it comes due
    running: dict[str, float] = {}
    now = 0.0

    def carry_out(decisions: list) -> None:  # type: ignore[type-arg]
        for decision in decisions:
            assert isinstance(decision, Start)
            mine = due.pop(decision.call_id)
            earlier = [name for name, when in due.items() if when <= now and when < mine - 1e-9]
            assert not earlier, f"{decision.call_id}, due {mine}, started at {now} before {earlier}"
            running[decision.call_id] = mine

    carry_out(scheduler.replicas_changed(states, now))
    for i in range(60):
        now += float(rng.exponential(1.0))
        action = rng.random()
        if action < 0.5 or not running:
            level = int(rng.integers(3))
            call = Call(f"c{i}", "m", now, priority=PRIORITIES[level], tenant="ab"[int(rng.integers(2))])
            due[call.id] = now + HOLD_S[level]
            carry_out(scheduler.arrive(call, Prediction(QuantileGrid.point(float(rng.integers(1, 50))), "oracle"), now))
            continue
        name = sorted(running)[int(rng.integers(len(running)))]
        when = running.pop(name)
        if action < 0.65:  # it failed and comes back with its place
            due[name] = when
            carry_out(scheduler.finished(CallRecord(name, "m", 0.0, "error"), now, retry=True))
        else:
            carry_out(scheduler.finished(CallRecord(name, "m", 0.0, "ok", output_tokens=5), now))


def test_with_a_share_the_tier_takes_every_so_manieth_start_and_classes_stay_apart() -> None:
    scheduler = world("fcfs", 0.25)
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    sure = Prediction(QuantileGrid.point(1.0), "oracle")
    scheduler.arrive(Call("first", "m", 0.0), sure, 0.0)
    for i in range(10):
        scheduler.arrive(Call(f"low{i}", "m", 0.0, priority="low"), sure, 0.0)
    for i in range(60):
        scheduler.arrive(Call(f"high{i:02d}", "m", 50.0, priority="high"), sure, 50.0)
    order, running, now = [], "first", 50.5
    for _ in range(24):
        now += 0.01  # no urgent call comes due meanwhile
        (start,) = scheduler.finished(CallRecord(running, "m", 0.0, "ok", output_tokens=1), now)
        running = start.call_id
        order.append(running[:3])
    assert order.count("low") == pytest.approx(24 / 4, abs=1)
    gaps = np.diff([i for i, kind in enumerate(order) if kind == "low"])
    assert gaps.max() <= 4

"""Room that is kept for better classes is kept, whatever arrives, under every binding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.reserve import Reserve
from swarmx.scheduler import Scheduler
from swarmx.types import PRIORITIES, Call, CallRecord, Reject, ReplicaState, Start

SLOTS = 4
STATES = [ReplicaState("r0", "m", "d", SLOTS), ReplicaState("r1", "m", "d", SLOTS)]


def scheduler_with(name: str, reserve: Reserve) -> Scheduler:
    scheduler = preset(name, 0, {"d": EngineConstants(1.0)}, reserve=reserve)
    scheduler.replicas_changed(STATES, 0.0)
    return scheduler


@pytest.mark.parametrize("name", ["late", "central_fcfs", "push", "least_outstanding"])
def test_a_share_of_slots_is_left_to_better_classes(name: str) -> None:
    scheduler = scheduler_with(name, Reserve({"high": 0.25, "normal": 0.25}))
    found: dict[str, int] = {}
    for k, level in enumerate(("low", "normal", "high")):
        for i in range(3 * SLOTS):
            decisions = scheduler.arrive(Call(f"{level}{i}", "m", float(k), priority=level), None, float(k))  # type: ignore[arg-type]
            found[level] = found.get(level, 0) + sum(isinstance(d, Start) for d in decisions)
    assert found["low"] == 2 * 2 and found["normal"] == 2 * 1
    assert found["high"] == 2 * 1 or name in ("push", "least_outstanding")  # those may queue at a replica


@pytest.mark.parametrize("name", ["late", "central_fcfs", "push"])
def test_a_reserved_replica_serves_its_classes_alone(name: str) -> None:
    scheduler = scheduler_with(name, Reserve(replicas={"r1": "high"}))
    starts = [
        d.replica
        for i in range(SLOTS)
        for d in scheduler.arrive(Call(f"c{i}", "m", 0.0), None, 0.0)
        if isinstance(d, Start)
    ]
    assert set(starts) == {"r0"}
    starts = [
        d.replica
        for i in range(SLOTS)
        for d in scheduler.arrive(Call(f"u{i}", "m", 0.0, priority="high"), None, 0.0)
        if isinstance(d, Start)
    ]
    assert "r1" in starts


def test_a_call_that_no_replica_is_open_to_is_rejected_with_the_reason() -> None:
    scheduler = scheduler_with("late", Reserve(replicas={"r0": "high", "r1": "normal"}))
    (decision,) = scheduler.arrive(Call("a", "m", 0.0, priority="low"), None, 0.0)
    assert isinstance(decision, Reject) and "reserved for better classes than low" in decision.reason


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PRIORITIES), st.integers(1, 9)), min_size=1, max_size=40), st.floats(0, 0.9))
def test_under_late_binding_worse_classes_never_take_a_reserved_slot(
    arrivals: list[tuple[str, int]], share: float
) -> None:
    scheduler = scheduler_with("late", Reserve({"high": share}))
    kept = int(share * SLOTS + 1e-9)
    running: dict[str, tuple[str, str, float]] = {}
    for i, (level, length) in enumerate(arrivals):
        now = float(i)
        decisions = []
        for name in [n for n, (_, _, end) in running.items() if end <= now]:
            del running[name]
            decisions += scheduler.finished(CallRecord(name, "m", 0.0, "ok", output_tokens=1), now)
        decisions += scheduler.arrive(Call(f"c{i}.{level}", "m", now, priority=level), None, now)  # type: ignore[arg-type]
        for decision in decisions:
            assert isinstance(decision, Start)
            name = decision.call_id
            there = sum(replica == decision.replica for replica, _, _ in running.values())
            assert there < SLOTS - (0 if name.endswith("high") else kept)
            running[name] = (decision.replica, level, now + length)


def test_the_shares_must_leave_something() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        Reserve({"high": 0.6, "normal": 0.4})
    table = np.zeros((21, 2))
    assert not Reserve().closed(2, STATES, table).any()

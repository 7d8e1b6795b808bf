"""Replicas that take calls and answer none."""

from __future__ import annotations

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.types import Call, CallRecord, ReplicaState, Start

CONSTANTS = EngineConstants(0.01)


def test_a_hung_replica_that_has_lost_its_calls_is_tried_again() -> None:
    scheduler = preset("late", engines={"default": CONSTANTS})
    scheduler.replicas_changed([ReplicaState("only", "m", slots=2)], 0.0)
    (started,) = scheduler.arrive(Call("a", "m", 0.0, prompt_tokens=10, max_tokens=20), None, 0.0)
    assert isinstance(started, Start)
    now = 0.0
    while not scheduler.cluster.find_hung(now):
        now += 1.0
        assert now < 1000
    assert scheduler.arrive(Call("b", "m", now, prompt_tokens=10, max_tokens=20), None, now) == []
    scheduler.finished(CallRecord("a", "m", 0.0, "cancelled", finished_s=now), now)  # its client has had enough
    decisions = [d for k in range(1, 10) for d in scheduler.tick(now + k)]
    assert [d.call_id for d in decisions if isinstance(d, Start)] == ["b"]

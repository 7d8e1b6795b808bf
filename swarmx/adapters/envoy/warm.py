"""Runs every compiled loop once before the first request: compiling takes seconds, a proxy waits 200 ms."""

from __future__ import annotations

from swarmx.adapters.envoy.lanes import Lanes
from swarmx.engine import EngineConstants
from swarmx.types import Call, CallRecord, ReplicaState


def warm_up() -> None:
    """Take a few calls through a small pool of its own, unfitted and fitted."""
    for options in ({}, {"engines": {"default": EngineConstants(0.01, 0.001, 1e-9, 1e-5)}}):
        lanes = Lanes("late", dict(options))
        lanes.owner.replicas_changed([ReplicaState(name, "m", slots=1) for name in ("a:1", "b:1")], 0.0)
        for lane in (lanes.owner, lanes.at_once, lanes.standby):
            for i in range(3):
                call = f"{lane.name}{i}"
                lane.arrive(Call(call, "m", 1.0, prompt_tokens=8), None, 1.0)
                lane.started(call, 1.1)
                lane.progress(call, 40, 1.5)
                lane.finished(CallRecord(call, "m", 1.0, "ok", output_tokens=80), 2.0)
        lanes.owner.tick(3.0)

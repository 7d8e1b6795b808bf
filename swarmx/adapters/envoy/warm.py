"""Runs every compiled loop once before the first request: compiling takes seconds, a proxy waits 200 ms."""

from __future__ import annotations

from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.rehearsal import rehearse
from swarmx.engine import EngineConstants


def warm_up() -> None:
    """Take calls through a small pool of its own, unfitted and fitted."""
    for options in ({}, {"engines": {"default": EngineConstants(0.01, 0.001, 1e-9, 1e-5)}}):
        lanes = Lanes("late", dict(options))
        for lane in (lanes.owner, lanes.at_once, lanes.standby):
            rehearse(lane, lane.name)

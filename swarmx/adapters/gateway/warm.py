"""Runs the compiled loops once before the first request: loading them takes longer than a call should wait."""

from __future__ import annotations

from swarmx.adapters.settings import SchedulerSettings
from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.types import Call, CallRecord, ReplicaState


def warm_up(settings: SchedulerSettings) -> None:
    """Load the scheduler's compiled parts, so that the first call does not wait for them."""
    scheduler = preset(settings.preset, engines={"default": EngineConstants(0.01)}, **settings.options)
    scheduler.receipts = True
    scheduler.replicas_changed([ReplicaState("a", "warm", slots=1), ReplicaState("b", "warm", slots=1)], 0.0)
    for i in range(4):
        scheduler.arrive(Call(f"warm-{i}", "warm", float(i), prompt_tokens=1), None, float(i))
    scheduler.started("warm-0", 4.0)
    scheduler.finished(CallRecord("warm-0", "warm", 0.0, "ok", output_tokens=10), 5.0)
    scheduler.tick(6.0)

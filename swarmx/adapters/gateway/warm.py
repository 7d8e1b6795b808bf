"""Runs the compiled loops before the first request: loading them takes longer than a call should wait."""

from __future__ import annotations

from swarmx.adapters.rehearsal import rehearse
from swarmx.adapters.settings import SchedulerSettings
from swarmx.engine import EngineConstants
from swarmx.presets import preset


def warm_up(settings: SchedulerSettings) -> None:
    """Load the scheduler's compiled parts, so that the first calls do not wait for them."""
    for given in ({}, {"engines": {"default": EngineConstants(0.01)}}):
        scheduler = preset(settings.preset, **{**given, **settings.options})
        scheduler.receipts = True
        rehearse(scheduler)

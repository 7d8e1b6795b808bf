"""What a router keeps beside its decisions, as configured: records of ended calls, receipts, live demand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from swarmx.adapters.ray_serve.counters import Counters
from swarmx.adapters.ray_serve.live import SharedDemand, shared_demand
from swarmx.adapters.ray_serve.recording import Recording, adopt, own_place
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.adapters.ray_serve.settings import RouterSettings
from swarmx.adapters.ray_serve.watching import Watcher
from swarmx.errors import BadInput
from swarmx.types import CallRecord, Receipt

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Companions:
    """recording, demand : None where they are not asked for, or cannot be had"""

    recording: Recording | None = None
    demand: SharedDemand | None = None

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        return () if self.demand is None else (self.demand,)

    @property
    def on_receipt(self) -> Callable[[Receipt], None] | None:
        """Takes receipts; None where nobody asks for them."""
        return None if self.recording is None else self.recording.receipts.add

    def on_record(self, ride: Ride, record: CallRecord) -> None:
        """Take the record of a call that is over."""
        if self.recording is not None:
            self.recording.write(ride, record)
        if self.demand is not None:
            self.demand.ended(record)

    def begin(self) -> asyncio.Task[None] | None:
        """Work beside the calls, on the running loop. Keep what it returns."""
        if self.demand is not None:
            self.demand.begin()
        return None if self.recording is None else asyncio.get_running_loop().create_task(self.recording.run())


def companions(
    settings: RouterSettings, app: str, deployment: str, clock: Callable[[], float], counters: Counters
) -> Companions:
    """Reads and writes files: call it off the loop. What cannot be had is logged, counted and left out."""
    return Companions(
        _or_none(lambda: _recording(settings, app, deployment, counters), counters),
        _or_none(lambda: _demand(settings, app, deployment, clock), counters),
    )


def _recording(settings: RouterSettings, app: str, deployment: str, counters: Counters) -> Recording | None:
    if settings.log.directory is None:
        return None
    place = own_place(settings.log.directory, app, deployment)

    def lost(count: int) -> None:
        for _ in range(count):
            counters.add("unrecorded")

    recording = Recording(settings.log, settings.predictor, place, lost)
    adopt(settings.log.directory)
    return recording


def _demand(settings: RouterSettings, app: str, deployment: str, clock: Callable[[], float]) -> SharedDemand | None:
    if settings.demand is None:
        return None
    return shared_demand(app, deployment, settings.demand, settings.predictor.path, clock)


def _or_none(make: Callable[[], T | None], counters: Counters) -> T | None:
    try:
        return make()
    except (BadInput, OSError) as problem:
        counters.add("left_out", str(problem))
        return None

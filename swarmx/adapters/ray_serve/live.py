"""What live workflows will still ask of each deployment, kept where handles route calls and published for the scaler.

All handles of a process that belong to one application and have the same settings share one book: an agent's calls to
several models come from there, and only together do they show where its workflows begin and what is still to come.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarmx.adapters.live_work import DemandSettings, LiveDemand, live_demand
from swarmx.adapters.ray_serve.demand_pages import EVERY_S, PATIENCE_S, pages
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.types import CallRecord

log = logging.getLogger(__name__)
_shared: dict[str, SharedDemand] = {}
_lock = threading.Lock()


class SharedDemand:
    """One application's book in this process; watches rides on the loop of Serve's routers. clock : seconds"""

    def __init__(self, application: str, demand: LiveDemand, clock: Callable[[], float]) -> None:
        self.application, self.demand, self.clock = application, demand, clock
        self.routes: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._pages: Any = None

    # ---- watching ----

    def entered(self, ride: Ride, now: float) -> None:
        self.demand.arrived(ride.call, ride.prediction, now)

    def routed(self, ride: Ride, now: float) -> None:
        self.demand.started(ride.call.id, now)

    def over(self, ride: Ride, now: float) -> None:
        self.demand.live.ended(ride.call.id)  # its length is not known yet

    def ended(self, record: CallRecord) -> None:
        """Its length is known now, which learned forecasts look at."""
        self.demand.ended(record, self.clock())

    # ---- publishing ----

    def begin(self) -> None:
        """Publish from the running loop, once."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._publish()), loop.create_task(self.demand.run(self.clock))]

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                page = {"routes": sorted(self.routes), "demand": self.demand.page(self.clock())}
                if self._pages is None:
                    self._pages = await asyncio.to_thread(pages)
                put = self._pages.put.remote(self.application, self.demand.book, page)
                await asyncio.wait_for(_awaited(put), PATIENCE_S)
            except Exception as problem:  # the scaler counts calls meanwhile
                self._pages = None
                log.debug("live demand could not be published: %s", problem)


def shared_demand(
    application: str, deployment: str, settings: DemandSettings, predictor: Path | None, clock: Callable[[], float]
) -> SharedDemand:
    """The book of this process, made by the first that asks. Reads the log; raises BadInput as `live_demand`."""
    key = f"{application} {settings.model_dump_json()} {predictor}"
    with _lock:
        if key not in _shared:
            _shared[key] = SharedDemand(application, live_demand(settings, [deployment], predictor), clock)
        found = _shared[key]
    found.routes.add(deployment)
    return found


async def _awaited(reference: Any) -> Any:
    return await reference

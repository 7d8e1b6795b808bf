"""Where routers put what live workflows still ask for, and where the autoscaling policies find it: a named actor.

Routers live in the processes that hold handles, policies in Serve's controller. Each process puts its page every
second; the actor keeps the latest ones, lives as long as the process that made it and is made anew by the next.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from swarmx.adapters.books import Books
from swarmx.scaling.demand import PoolDemand

log = logging.getLogger("ray.serve")
NAME, NAMESPACE = "swarmx_live_demand", "serve"
EVERY_S = 1.0  # between two pages of a process, and between two looks of a policy
STALE_S = 15.0  # a process that has been silent for so long is gone
PATIENCE_S = 10.0


class Pages:
    """The actor's body. A page: `routes`, the deployments that its process calls; `demand`, for `books.read_book`."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}

    def put(self, application: str, process: str, page: dict[str, Any]) -> None:
        self._rows[application, process] = time.monotonic(), page

    def latest(self, application: str) -> dict[str, dict[str, Any]]:
        """Process -> its page, of those that are heard of."""
        now = time.monotonic()
        self._rows = {key: row for key, row in self._rows.items() if now - row[0] <= STALE_S}
        return {process: page for (app, process), (_, page) in self._rows.items() if app == application}


def pages() -> Any:
    """The actor, made if there is none. Blocks; raises what Ray raises."""
    import ray

    options = {"name": NAME, "namespace": NAMESPACE, "get_if_exists": True}
    return ray.remote(num_cpus=0)(Pages).options(**options).remote()


class Foreseen:
    """A policy's side: looks by a thread, so that the control loop waits for nothing."""

    def __init__(self, application: str) -> None:
        self.application = application
        self._thread = ThreadPoolExecutor(1, "swarmx-demand")
        self._looking: Future[dict[str, dict[str, Any]]] | None = None
        self._looked_s = float("-inf")
        self._books = Books(STALE_S)
        self._routes: dict[str, frozenset[str]] = {}

    def demand(self, deployment: str, now: float) -> PoolDemand | None:
        """What live workflows will ask of it, as of the last look; None where no router says so. now : any clock"""
        self._look(now)
        sources = [process for process, routes in self._routes.items() if deployment in routes]
        return self._books.demand(deployment, sources, now)

    def _look(self, now: float) -> None:
        if self._looking is not None and self._looking.done():
            self._take(self._looking.result(), now)
            self._looking = None
        if self._looking is None and time.monotonic() - self._looked_s >= EVERY_S:
            self._looked_s = time.monotonic()
            self._looking = self._thread.submit(self._latest)

    def _take(self, found: dict[str, dict[str, Any]], now: float) -> None:
        self._routes = {process: frozenset(page["routes"]) for process, page in found.items()}
        for process, page in found.items():
            self._books.put(process, page, now)

    def _latest(self) -> dict[str, dict[str, Any]]:
        import ray

        try:
            actor = ray.get_actor(NAME, namespace=NAMESPACE)
            pages: dict[str, dict[str, Any]] = ray.get(actor.latest.remote(self.application), timeout=PATIENCE_S)
        except Exception:  # nobody publishes, or the actor is on its way: counts decide
            return {}
        return pages

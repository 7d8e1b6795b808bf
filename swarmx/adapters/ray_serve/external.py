"""`swarmx serve-scaler`: the scaling loop outside of Ray, which sets replicas through Serve's REST API.

For applications with `external_scaler_enabled: true`, whose own autoscaling Serve then leaves off. Nothing runs in the
controller, so neither an exception nor a slow policy can hurt it; the price is that counts come from the metrics pages,
a few seconds old. When a page or the dashboard does not answer, nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from swarmx.adapters.books import MAX_PAGE_BYTES, PAGE_S, Books, Page, read_page
from swarmx.adapters.envoy.pages import as_json, serve_pages
from swarmx.adapters.ray_serve.deciding import OrByCount
from swarmx.adapters.ray_serve.external_settings import ScaledApplication, ScaledDeployment, ServeScalerSettings
from swarmx.adapters.ray_serve.metrics_page import Counts, read_counts
from swarmx.adapters.ray_serve.rest import RestError, ServeApi
from swarmx.adapters.ray_serve.totals import Totals
from swarmx.errors import BadInput
from swarmx.scaler import PoolSettings, Scaler
from swarmx.scaling import scaling_preset
from swarmx.scaling.budget import DeviceKind
from swarmx.scaling.decisions import Scale
from swarmx.scaling.demand import PoolDemand
from swarmx.scaling.samples import PoolSample, ReplicaView, Stage

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)
STAGES: Mapping[str, Stage] = {"RUNNING": "ready", "PENDING_MIGRATION": "ready", "STOPPING": "draining"}
PATIENCE_S = 10.0
RECENT_S = 120.0  # over which the mean service time is taken


@dataclass(slots=True)
class Watched:
    """Memory of one deployment."""

    name: str
    settings: ScaledDeployment
    arrived: Totals = field(default_factory=lambda: Totals(1))
    ended: Totals = field(default_factory=lambda: Totals(1))

    def sample(self, details: Mapping[str, Any], counts: Counts, now: float) -> PoolSample:
        """details : of Serve's REST API"""
        views = _views(details, counts, self.settings, now)
        running = sum(counts.running.get(view.id, 0.0) for view in views)
        for totals, values in ((self.arrived, counts.arrived), (self.ended, counts.ended)):
            totals.add(values, {source: (value,) for source, value in values.items()})
        return PoolSample(
            pool=self.name, observed_s=now, replicas=views, waiting=sum(counts.queued.values()), running=running,
            arrived=self.arrived.sums[0], finished=self.ended.sums[0], cold_s=self.settings.cold_s,
        )  # fmt: skip


def _views(
    details: Mapping[str, Any], counts: Counts, settings: ScaledDeployment, now: float
) -> tuple[ReplicaView, ...]:
    views = []
    for replica in details.get("replicas") or ():
        id_, stage = str(replica.get("replica_id")), STAGES.get(str(replica.get("state")), "starting")
        age_s = now - float(replica.get("start_time_s") or now)
        left_s = max(settings.cold_s - age_s, 0.0) if stage == "starting" else 0.0
        here = int(counts.running.get(id_, 0.0))
        views.append(ReplicaView(id_, stage, here, settings.slots, ready_in_s=left_s))
    missing = int(details.get("target_num_replicas") or 0) - sum(v.stage != "draining" for v in views)
    for place in range(max(missing, 0)):
        views.append(ReplicaView(f"starting-{place}", "starting", slots=settings.slots, ready_in_s=settings.cold_s))
    return tuple(views)


class Application:
    """The scaler of one application and what it remembers."""

    def __init__(self, name: str, settings: ScaledApplication) -> None:
        self.name, self.settings = name, settings
        policy, bounds = scaling_preset(settings.policy, **settings.options)
        try:
            bounds = replace(bounds, **settings.bounds)
        except (TypeError, ValueError) as problem:
            raise BadInput(f"applications.{name}.bounds: {problem}") from None
        self.watched = {n: Watched(n, d) for n, d in settings.deployments.items()}
        self.scaler = Scaler(
            settings.policy, OrByCount(policy), bounds, budget=settings.budget,
            settings={
                n: PoolSettings(
                    replace(bounds, minimum=d.minimum, maximum=d.maximum), (DeviceKind(units=d.units),), d.weight
                )
                for n, d in settings.deployments.items()
            },
        )  # fmt: skip
        self.decided: dict[str, Scale] = {}

    def decide(
        self,
        details: Mapping[str, Any],
        counts: Mapping[tuple[str, str], Counts],
        now: float,
        demand: Callable[[str], PoolDemand | None] = lambda model: None,
    ) -> list[tuple[Scale, int]]:
        """Decisions and the replicas that each deployment is to have now. demand : of live workflows, by model

        Raises BadInput for a deployment that is not there.
        """
        deployments = details.get("deployments") or {}
        if missing := self.watched.keys() - deployments.keys():
            there = ", ".join(deployments) or "none"
            raise BadInput(f"application {self.name!r} has no deployment {min(missing)!r}; there are {there}")
        samples = []
        for name, watched in self.watched.items():
            sample = watched.sample(deployments[name], counts.get((self.name, name), Counts()), now)
            coming = demand(watched.settings.model or name)
            samples.append(replace(sample, service_s=self._service_s(name), demand=coming))
        found = self.scaler.step(samples)
        self.decided |= {scale.pool: scale for scale in found}
        return [(scale, int(deployments[scale.pool].get("target_num_replicas") or 0)) for scale in found]

    def _service_s(self, name: str) -> float | None:
        """Calls that run over calls that end a second: Little (1961), A proof for the queuing formula L = λW."""
        memory = self.scaler.memory.get(name)
        if memory is None:
            return None
        running, rate = memory.history.mean("running", RECENT_S), memory.history.rate("finished", RECENT_S)
        return running / rate if running and rate else None


class ServeScaler:
    """All applications of a settings file."""

    def __init__(self, settings: ServeScalerSettings, client: httpx.AsyncClient) -> None:
        self.settings = settings
        self.api = ServeApi(client, settings.address, settings.token_file)
        self.applications = {name: Application(name, entry) for name, entry in settings.applications.items()}
        self.looked = False
        self.client, self.books = client, Books()

    async def check(self) -> None:
        """Raises BadInput when an application is not there or not to be scaled from outside."""
        there = await self.api.applications()
        for name in self.applications:
            if name not in there:
                raise BadInput(f"there is no application {name!r} in Ray Serve; there are {', '.join(there) or 'none'}")
            if not there[name].get("external_scaler_enabled"):
                raise BadInput(f"set external_scaler_enabled: true for the application {name!r} in Serve's config")

    async def look(self, now: float) -> None:
        """Look once and carry out what is decided; changes nothing when it cannot see everything."""
        import httpx

        try:
            urls = self.settings.metrics or await self.api.metrics_pages()
            pages = await asyncio.gather(*(self.api.metrics(url) for url in urls))
            there = await self.api.applications()
        except (httpx.HTTPError, RestError, BadInput) as problem:
            self.looked = False
            log.warning("Ray cannot be seen, replicas stay: %s", problem or type(problem).__name__)
            return
        self.looked, counts = True, read_counts(pages)
        await self._read_books(now)
        demand = partial(self.books.demand, sources=self.settings.demand, now=now)
        for name, application in self.applications.items():
            try:
                for scale, target in application.decide(there.get(name, {}), counts, now, demand):
                    if scale.target != target:
                        await self._carry_out(name, scale)
            except (httpx.HTTPError, RestError, BadInput) as problem:  # the next look tries again
                log.warning("application %s: %s", name, problem)

    async def _read_books(self, now: float) -> None:
        """What live workflows will still ask for; a page that does not answer keeps its last word for a while."""
        urls = self.settings.demand
        found = await asyncio.gather(*(_page_at(self.client, url) for url in urls))
        for url, page in zip(urls, found, strict=True):
            if page is not None:
                self.books.put(url, page, now)

    async def _carry_out(self, application: str, scale: Scale) -> None:
        log.info("swarmx scale %s %s", application, json.dumps(asdict(scale.receipt)) if scale.receipt else scale.pool)
        await self.api.scale(application, scale.pool, scale.target)

    def state(self) -> dict[str, Any]:
        """Last decisions and their reasons, for people."""
        return {
            name: {pool: asdict(scale.receipt) for pool, scale in app.decided.items() if scale.receipt}
            for name, app in self.applications.items()
        }


async def _page_at(client: httpx.AsyncClient, url: str) -> Page | None:
    """What a picker or gateway publishes; None for whatever goes wrong."""
    import httpx

    try:
        async with asyncio.timeout(PAGE_S):
            got = await client.get(url)
    except (TimeoutError, httpx.HTTPError, ValueError):
        return None
    return read_page(got.content) if got.status_code == 200 and len(got.content) <= MAX_PAGE_BYTES else None


async def run_serve_scaler(settings: ServeScalerSettings, stopped: asyncio.Event) -> None:
    """Look until `stopped` is set. Raises BadInput when an application cannot be scaled from outside."""
    import httpx

    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
        scaler = ServeScaler(settings, client)
        await scaler.check()
        pages = await serve_pages(settings.listen, {"/state": lambda: as_json(scaler.state())}, lambda: scaler.looked)
        async with pages:
            while not stopped.is_set():
                await scaler.look(time.time())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), settings.every_s)

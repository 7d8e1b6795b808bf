"""A running endpoint picker put together from its settings."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Coroutine, Mapping
from typing import Any

from swarmx.adapters.adaptation import FIGURES, Adapting
from swarmx.adapters.envoy.counters import Counters, Gauges
from swarmx.adapters.envoy.endpoints import endpoint_of, watch_dns, watch_file
from swarmx.adapters.envoy.journal import Journal
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pages import as_json, serve_pages
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.ride import Ride
from swarmx.adapters.envoy.scrape import Picture, ScrapeRules
from swarmx.adapters.envoy.server import PickerServer
from swarmx.adapters.envoy.settings import PickerSettings, PoolDiscovery
from swarmx.adapters.envoy.stream import StreamRules
from swarmx.adapters.envoy.warm import warm_up
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.guarding import EXPECTED, expectations, guard_figures
from swarmx.adapters.guarding import FIGURES as GUARD
from swarmx.adapters.live_work import live_demand
from swarmx.adapters.predicting import Forecaster, Predicts, Told, load_predictor
from swarmx.adapters.settings import DnsDiscovery, FileDiscovery
from swarmx.types import CallRecord

log = logging.getLogger(__name__)


class Picker:
    """start, serve until stop is called; then drain. Everything runs on the event loop that calls it."""

    def __init__(self, settings: PickerSettings, predictor: Predicts | None = None) -> None:
        self.settings, self.clock, self.counters = settings, Clock().now, Counters()
        self.lanes = Lanes(settings.scheduler.preset, dict(settings.scheduler.options))
        self.adapting = predictor if isinstance(predictor, Adapting) else None
        told = Told.counted(self.counters.add)
        self.forecaster = None if predictor is None else Forecaster(predictor, settings.predictor.budget_s, told)
        self.objectives = dict(settings.objectives)
        self.journal = self._journal()
        limits = PickLimits(settings.fallbacks, settings.shed_waiting)
        self.pool = Pool(self.lanes, self.clock, limits, self.counters, self.forecaster, self._ended)
        if settings.demand is not None:
            self.pool.live = live_demand(settings.demand, (settings.model,), settings.predictor.path)
        self.picture = Picture(self.pool, self._scrape_rules(), self.clock, self.counters)
        self.server = PickerServer(self.pool, self._stream_rules(), self.is_ready)
        self.port = self.pages_port = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._pages: asyncio.Server | None = None
        self.lease: Any = None
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self.counters.show(self._gauges)

    async def start(self) -> None:
        """Listen, and begin to look at endpoints. Raises BadInput when an address cannot be used."""
        await asyncio.to_thread(warm_up)
        pages = {
            "/metrics": lambda: ("text/plain; version=0.0.4", self.counters.text()),
            "/state": lambda: as_json(self.state()),
        }
        self._pages = await serve_pages(self.settings.metrics_listen, pages, self.is_synced)
        self.pages_port = self._pages.sockets[0].getsockname()[1]
        tls = self.settings.tls
        self.port = await self.server.start(self.settings.listen, None if tls is None else tls.read())
        self._spawn(self._find_endpoints(), self._find_objectives(), self.picture.run(), self._tick(), self._elect())
        if self.pool.live is not None:
            self._spawn(self.pool.live.run(self.clock))
        if self.adapting is not None:
            self._spawn(self.adapting.follow())
        elif self.forecaster is not None and self.settings.predictor.path is not None:
            self._spawn(self.forecaster.watch(self.settings.predictor.path, self.settings.predictor.own_process))
        log.info("picking for %s on port %d", self.settings.model, self.port)

    async def stop(self) -> None:
        """Not ready from now on; hand the queue over, let requests in hand end, then leave."""
        self.server.draining = True
        if self.lease is not None:
            await self.lease.release()
        await asyncio.sleep(self.settings.notice_s)
        await self.server.drain(self.settings.drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pages is not None:
            self._pages.close()
        if self.forecaster is not None:
            self.forecaster.close()
        if self.journal is not None:
            self.journal.close()

    def is_ready(self) -> bool:
        """Whether the proxy should ask this picker: endpoints are known, and it owns the queue or may stand in."""
        lease = self.settings.lease
        may_answer = self.pool.owns_queue or (lease is not None and lease.standby == "answer")
        return self.picture.synced and may_answer and not self.server.draining

    def is_synced(self) -> bool:
        """Whether it could answer, owner or not: what a pod's readiness should follow, so that roll-outs go on."""
        return self.picture.synced and not self.server.draining

    def state(self) -> dict[str, Any]:
        """What it knows of its endpoints, without anything that a request contained."""
        cluster = self.lanes.cluster
        rows = [
            {"endpoint": s.id, "device": s.device, "slots": s.slots, "speed": s.speed, "running": s.running,
             "waiting": s.waiting, "ours": len(cluster.on(s.id)), "draining": s.draining, "out": s.breaker_open}
            for s in cluster.states
        ]  # fmt: skip
        return {
            "model": self.settings.model, "preset": self.lanes.name, "mode": self.settings.mode,
            "owns_queue": self.pool.owns_queue, "synced": self.picture.synced, "observed_s": self.clock(),
            "held": len(self.lanes.owner.queue), "in_flight": len(self.pool.rides), "arrived": self.pool.arrived,
            "unserved": self.pool.unserved, "ended": int(self.counters.total("ended")),
            "service_s": self.lanes.owner.mean_service_s or None,
            "endpoints": rows, "demand": None if self.pool.live is None else self.pool.live.page(self.clock()),
        }  # fmt: skip

    # ---- parts ----

    def _spawn(self, *work: Coroutine[Any, Any, None]) -> None:
        for one in work:
            task = asyncio.create_task(one)
            task.add_done_callback(self._over)
            self._tasks.append(task)

    def _over(self, task: asyncio.Task[None]) -> None:
        """A picker that no longer follows its endpoints or its lease must not look well: it stops, to be restarted."""
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.failure = self.failure or problem
            self.failed.set()

    async def _find_endpoints(self) -> None:
        found, tell = self.settings.discover, self.picture.set_endpoints
        if found is None:
            tell(tuple(endpoint_of(r) for r in self.settings.replicas))
        elif isinstance(found, FileDiscovery):
            await watch_file(found.path, found.every_s, tell)
        elif isinstance(found, DnsDiscovery):
            await watch_dns(found.host, found.port, dict(found.template), found.every_s, tell)
        elif isinstance(found, PoolDiscovery):
            from swarmx.adapters.kubernetes import client
            from swarmx.adapters.kubernetes.inference_pool import watch_pool

            async with client.in_cluster() as api:
                await watch_pool(api, found.name, found.namespace or api.namespace, found.device_label, tell)

    async def _find_objectives(self) -> None:
        """What the cluster says of an objective's priority; the file's word counts where both speak."""
        found = self.settings.discover
        if not isinstance(found, PoolDiscovery):
            return
        from swarmx.adapters.kubernetes import client
        from swarmx.adapters.kubernetes.objectives import watch_objectives

        def changed(priorities: Mapping[str, int]) -> None:
            self.objectives.clear()
            self.objectives.update({**priorities, **self.settings.objectives})

        async with client.in_cluster() as api:
            await watch_objectives(api, found.name, found.namespace or api.namespace, changed)

    async def _elect(self) -> None:
        rules = self.settings.lease
        if rules is None:
            return
        from swarmx.adapters.kubernetes import client
        from swarmx.adapters.kubernetes.lease import Lease, PodLabel, identity

        self.pool.set_owner(False)
        async with client.in_cluster() as api:
            namespace = rules.namespace or api.namespace
            me, label = PodLabel(api, os.environ.get("POD_NAME")), rules.label
            self.lease = Lease(api, namespace, rules.name, identity(), rules.duration_s, rules.renew_s)
            if label:  # an owner that was killed has left it on this pod
                self._spawn(me.set(label, None))

            def changed(owns: bool) -> None:
                self.pool.set_owner(owns)
                if label:
                    self._spawn(me.set(label, "true" if owns else None))

            await self.lease.run(changed)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.lanes.owner.tick_s)
            self.pool.tick()
            if self.journal is not None:
                self.journal.flush()

    def _ended(self, ride: Ride, record: CallRecord) -> None:
        if ride.address:
            self.picture.note_call(ride.address, failed=ride.answer.status >= 500)
        if self.adapting is not None and ride.answer.tokens > 0:  # an unread answer has no length
            self.adapting.finished(record)
        prompt = self.settings.log.prompt
        if self.journal is not None and prompt != "embed":
            self.journal.add(ride.record(record.status, record.finished_s or 0.0, prompt))

    def _gauges(self) -> Gauges:
        cluster = self.lanes.cluster
        yield "owns_queue", "1 for the picker that owns the queue.", float(self.pool.owns_queue)
        yield "held", "Requests held back now.", len(self.lanes.owner.queue)
        yield "in_flight", "Requests that were given an endpoint and have not ended.", len(self.pool.rides)
        yield "endpoints", "Endpoints known.", len(cluster.states)
        yield "endpoints_usable", "Endpoints that take calls.", len(self.lanes.usable(None))
        for tier, count in expectations(self.lanes.owner).items():
            yield f"expectations_{tier}", EXPECTED, count
        for name, value in guard_figures(self.lanes.owner).items():
            yield name, GUARD[name], value
        if self.adapting is not None:
            for name, value in self.adapting.figures().items():
                yield name, FIGURES[name], value
            for level, share in self.adapting.coverage().items():
                about = f"Share of the latest calls no longer than their predicted {level} quantile as served."
                yield f"prediction_coverage_{level}".replace(".", "_"), about, share
        elif self.forecaster is not None:
            yield "model_swaps", "Models taken over while running.", self.forecaster.swaps

    def _journal(self) -> Journal | None:
        rules = self.settings.log
        if rules.directory is None:
            return None
        return Journal(rules.directory, self.counters, rules.rotate_records, rules.rotate_s)

    def _scrape_rules(self) -> ScrapeRules:
        s = self.settings
        return ScrapeRules(
            s.model, s.scrape.path, s.scrape.every_s, s.scrape.timeout_s, s.scrape.stale_s, s.scrape.max_bytes, s.slots
        )

    def _stream_rules(self) -> StreamRules:
        s = self.settings
        return StreamRules(
            s.model,
            self.objectives,
            s.max_body_bytes,
            s.max_bodies_bytes,
            s.share,
            s.receipts,
            s.proxy.hold_s,
            s.proxy.buffered_s,
            s.prefix_cache,
            s.proxy.answers == "watched",
        )


async def run_picker(settings: PickerSettings, stopped: asyncio.Event) -> None:
    """Serve until `stopped` is set, then drain. Raises what has ended a part of the picker before that."""
    predictor: Predicts | None = None
    if settings.predictor.path is not None and settings.predictor.kind != "none":
        adaptation, path, own = settings.adaptation, settings.predictor.path, settings.predictor.own_process
        adapts = adaptation.kind != "none"
        predictor = Adapting.open(adaptation, path, own) if adapts else load_predictor(path, own)
    picker = Picker(settings, predictor)
    await picker.start()
    gc.collect()
    gc.freeze()  # going through all that libraries have made stops picks for 70 ms
    ends = [asyncio.create_task(event.wait()) for event in (stopped, picker.failed)]
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await picker.stop()
    gc.unfreeze()  # else some libraries count it as leaked when the process ends
    if picker.failure is not None:
        raise picker.failure

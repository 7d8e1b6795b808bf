"""Puts a gateway together, starts it, and takes it down without losing what it has accepted."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from swarmx.adapters.adaptation import FIGURES, AdaptationSettings, run_trainer
from swarmx.adapters.gateway.access import Access
from swarmx.adapters.gateway.accounts import show_accounts
from swarmx.adapters.gateway.adapting import embedding_of, predictor_of
from swarmx.adapters.gateway.admin import Admin
from swarmx.adapters.gateway.app import Front
from swarmx.adapters.gateway.arms import MAIN, PLAIN, Arms
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.gateway.ended import Ended
from swarmx.adapters.gateway.guarding import show_guard
from swarmx.adapters.gateway.listening import listen, port_of, runner_of
from swarmx.adapters.gateway.metrics import Metrics
from swarmx.adapters.gateway.monitor import Monitor
from swarmx.adapters.gateway.peers import Peers
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.receipts import ReceiptStore
from swarmx.adapters.gateway.records import RecordLog
from swarmx.adapters.gateway.select import Selection
from swarmx.adapters.gateway.settings import ServerSettings
from swarmx.adapters.gateway.state import GatewayState
from swarmx.adapters.gateway.tracing import tracing_of
from swarmx.adapters.gateway.trial import Shadow
from swarmx.adapters.gateway.warm import warm_up
from swarmx.adapters.journal_files import JournalFiles
from swarmx.adapters.live_work import DemandSettings, live_demand
from swarmx.adapters.predicting import Forecaster
from swarmx.adapters.settings import LogSettings, PoolSettings, PredictorSettings, SchedulerSettings
from swarmx.errors import BadInput
from swarmx.journal import journalled
from swarmx.presets import preset
from swarmx.scheduler import Scheduler

log = logging.getLogger(__name__)
LATEST = 200  # finished calls that the status page can show


@dataclass(frozen=True)
class GatewaySettings:
    """mode : "on", "shadow", or the share of workflows that swarmx serves while the shadow preset serves the rest"""

    pools: Mapping[str, PoolSettings]
    server: ServerSettings = field(default_factory=ServerSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    predictor: PredictorSettings = field(default_factory=PredictorSettings)
    log: LogSettings = field(default_factory=LogSettings)
    mode: str | float = "on"
    adaptation: AdaptationSettings = field(default_factory=AdaptationSettings)
    demand: DemandSettings | None = None


class Gateway:
    """A running gateway. `start`, then `stop`; or `serve` to run until a signal."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.state = _state(settings)
        self.port = self.admin_port = 0
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Listen. Raises BadInput when an address, file or directory cannot be used."""
        state, server = self.state, self.settings.server
        await asyncio.to_thread(warm_up, self.settings.scheduler)
        self._session = session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0, ttl_dns_cache=10),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=server.upstream.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            read_bufsize=2**18,
        )
        if state.records is not None:
            state.records.start()
        front = web.Application(client_max_size=server.limits.body_bytes)
        access = Access(server.keys)
        peers = None if server.peers is None else Peers(server.peers, state.clock, session)
        selection = Selection(state, access)
        front.add_routes(Front(state, session, access, peers).routes())
        front.add_routes(selection.routes())
        admin = web.Application(client_max_size=2**20)
        admin.add_routes(Admin(state, peers).routes())
        self.port = await self._listen(front, server.host, server.port, tls=True)
        self.admin_port = await self._listen(admin, server.admin.host, server.admin.port, tls=False)
        for pool in state.pools.values():
            self._spawn(pool.run())
            self._spawn(Monitor(pool, session).run())
        if state.live is not None:
            self._spawn(state.live.run(state.clock.now))
        if peers is not None:
            self._spawn(peers.run())
        self._spawn(selection.run())
        self._spawn(self._flush())
        self._adapt()
        state.metrics.up.set(1)

    def _adapt(self) -> None:
        """Follow the registry, and run a trainer where that is wanted; without one, follow the model's directory."""
        adaptation, model, log = self.settings.adaptation, self.settings.predictor.path, self.settings.log
        forecaster = self.state.predictor
        if self.state.ended.adapting is None and forecaster is not None and model is not None:
            self._spawn(forecaster.watch(model, self.settings.predictor.own_process))
            name, about = "swarmx_model_swaps", FIGURES["model_swaps"]
            self.state.metrics.add_gauge(name, about, (), lambda: [((), float(forecaster.swaps))])
        if self.state.ended.adapting is not None:
            self._spawn(self.state.ended.adapting.follow())
            if adaptation.trainer == "process" and model is not None and log.directory is not None:
                self._spawn(run_trainer(adaptation, log.directory, model))

    async def stop(self) -> None:
        """Refuse new calls, let the accepted ones end within `drain_s`, write the records, close everything."""
        state = self.state
        state.draining = True
        state.metrics.up.set(0)
        for server in self._servers[:1]:
            server.close()
        loop = asyncio.get_running_loop()
        limit = loop.time() + self.settings.server.drain_s
        while state.in_flight and loop.time() < limit:
            await asyncio.sleep(0.05)
        for runner in self._runners:
            await runner.cleanup()
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if state.predictor is not None:
            state.predictor.close()
        await asyncio.to_thread(self._write_rest)

    async def serve(self) -> None:
        """Start, run until SIGTERM or SIGINT, stop."""
        try:
            await self.start()
        except BadInput:
            if self._session is not None:
                await self._session.close()
            raise
        gc.collect()
        gc.freeze()  # what has been loaded stays; no later collection needs to look at it
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        log.info("serving on port %d, administration on port %d", self.port, self.admin_port)
        await stop.wait()
        log.info("draining %d calls", self.state.in_flight)
        await self.stop()
        gc.unfreeze()

    def _write_rest(self) -> None:
        self.state.receipts.flush()
        if self.state.records is not None:
            self.state.records.close()
        for journal in self.state.journals:
            journal.close()
        if self.state.ended.tracing is not None:
            self.state.ended.tracing.close()

    async def _listen(self, app: web.Application, host: str, port: int, tls: bool) -> int:
        limits = self.settings.server.limits
        runner = runner_of(app, limits)
        await runner.setup()
        self._runners.append(runner)
        server = await listen(runner, host, port, limits, self.settings.server.tls if tls else None)
        self._servers.append(server)
        return port_of(server)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def _flush(self) -> None:
        """Receipts go to their file now and then, off the loop."""
        while True:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(self.state.receipts.flush)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.critical("a part of the gateway stopped", exc_info=problem)


def _state(settings: GatewaySettings) -> GatewayState:
    if not settings.pools:
        raise BadInput("model_pools: at least one pool is needed")
    metrics, clock = Metrics(), Clock()
    directory = settings.log.directory
    receipts = ReceiptStore(settings.log.receipts, directory)
    records = None
    if directory is not None:
        lost, enrich = metrics.records_lost.inc, embedding_of(settings.log, settings.predictor)
        records = RecordLog(directory, settings.log.rotate_records, settings.log.rotate_s, lost, enrich)
    server = settings.server
    tracing = None if server.tracing is None else tracing_of(server.tracing)
    model, adapting = predictor_of(settings.predictor, settings.adaptation, metrics)
    ended = Ended(metrics, records, settings.log.prompt, deque(maxlen=LATEST), tracing, adapting)
    journals = _journals(settings)
    pools = {
        name: Pool(
            name,
            pool,
            _arms(settings, pool, journals.get(name)),
            server.limits,
            server.upstream,
            clock,
            metrics,
            receipts,
            ended.add,
        )
        for name, pool in settings.pools.items()
    }
    live = None if settings.demand is None else live_demand(settings.demand, tuple(pools), settings.predictor.path)
    for one in pools.values():
        one.live = live
    predictor = None if model is None else Forecaster(model, settings.predictor.budget_s, metrics.predictions)
    state = GatewayState(server, settings.log, clock, metrics, receipts, pools, ended, records, predictor)
    state.journals += journals.values()
    state.live = live
    _gauges(state)
    return state


def _journals(settings: GatewaySettings) -> dict[str, JournalFiles]:
    if not settings.log.journal:
        return {}
    if settings.log.directory is None:
        raise BadInput("log.journal: needs log.directory, where the journal goes")
    folder = settings.log.directory / "journal"
    return {name: JournalFiles(folder, name.replace("/", "_")) for name in settings.pools}


def _arms(settings: GatewaySettings, pool: PoolSettings, journal: JournalFiles | None) -> Arms:
    wanted = pool.scheduler or settings.scheduler
    main = _scheduler(wanted, settings.log.receipts > 0 or settings.mode == "shadow")
    if journal is not None:
        main = journalled(main, journal)
    if settings.mode == "on":
        return Arms({MAIN: main})
    plain = _scheduler(SchedulerSettings(preset=settings.server.shadow_preset), settings.log.receipts > 0)
    if settings.mode == "shadow":
        return Arms({PLAIN: plain}, shadow=Shadow(main))
    return Arms({MAIN: main, PLAIN: plain}, share=float(settings.mode))


def _scheduler(settings: SchedulerSettings, receipts: bool) -> Scheduler:
    scheduler = preset(settings.preset, **settings.options)
    scheduler.receipts = receipts
    return scheduler


def _gauges(state: GatewayState) -> None:
    pools = state.pools
    show_accounts(state.metrics, pools)
    show_guard(state.metrics, pools)
    state.metrics.add_gauge(
        "swarmx_num_requests_waiting", "Calls in the queue", ("pool",),
        lambda: [((name,), pool.waiting_calls) for name, pool in pools.items()],
    )  # fmt: skip
    state.metrics.add_gauge(
        "swarmx_num_requests_running", "Calls on a replica", ("pool", "replica"),
        lambda: [((name, r.id), r.in_flight) for name, pool in pools.items() for r in pool.replicas.values()],
    )  # fmt: skip
    state.metrics.add_gauge(
        "swarmx_replica_usable", "1 where calls can be sent", ("pool", "replica"),
        lambda: [((name, r.id), r.usable(state.clock.now())) for name, p in pools.items() for r in p.replicas.values()],
    )  # fmt: skip
    state.metrics.add_gauge(
        "swarmx_replica_speed", "Learned speed, 1 is its kind's mean", ("pool", "replica"),
        lambda: [((name, r.id), next(p.arms.schedulers()).fit.speed(r.id))
                 for name, p in pools.items() for r in p.replicas.values()],
    )  # fmt: skip
    state.metrics.add_gauge(
        "swarmx_fairness_jain", "Jain's index of tokens served per tenant", (), lambda: [((), state.ended.jain())]
    )

"""Keeps the pool's picture of its endpoints: the list, what their metrics pages say, which of them fail.

A report counts until it is `stale_s` old; after that the pool's own book is all that is known of an endpoint. A page
that hangs, is too long or says impossible things is no report and costs no more than its time limit. Connections
refused `refused_after` times in a row take an endpoint out until one is accepted; so do failed calls in a row.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import aiohttp

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.endpoints import Endpoint
from swarmx.adapters.envoy.metrics_text import Load, read_load
from swarmx.adapters.envoy.pool import Pool
from swarmx.adapters.fetch import fetch, page_client
from swarmx.types import ReplicaState

log = logging.getLogger(__name__)
AT_ONCE = 32  # scrapes that run at the same time
TOGETHER = 4  # begin at the same moment; one by one they cost half as much again, and delay picks twice as much
LARGE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ScrapeRules:
    """every_s 0 switches scraping off; slots, context_tokens : where an endpoint does not say them"""

    model: str
    path: str = "/metrics"
    every_s: float = 0.5
    timeout_s: float = 1.0
    stale_s: float = 3.0
    max_bytes: int = 2 * 2**20
    slots: int = 64
    context_tokens: int = 1_000_000
    refused_after: int = 3
    failed_after: int = 5
    failed_s: float = 5.0


@dataclass(slots=True)
class Known:
    """What is known of one endpoint beyond its configuration. others : calls there that are not ours"""

    load: Load | None = None
    load_s: float = 0.0
    others: int = 0
    slots: int | None = None
    refused: int = 0
    failed: int = 0
    closed_until_s: float = 0.0


@dataclass
class Picture:
    """Endpoints as `ReplicaState`s for the pool."""

    pool: Pool
    rules: ScrapeRules
    clock: Callable[[], float]
    counters: Counters
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    synced: bool = False  # whether a list has ever come

    def set_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        """The list has changed."""
        self.synced = True
        self.endpoints = {e.address: e for e in endpoints}
        self.known = {address: self.known.get(address, Known()) for address in self.endpoints}
        self.pool.set_states(self.states())
        log.info("%d endpoints", len(endpoints))

    def states(self) -> list[ReplicaState]:
        now = self.clock()
        return [self._state(e, self.known[e.address], now) for e in self.endpoints.values()]

    def note_call(self, address: str, failed: bool) -> None:
        """A call ended there; failures in a row close the endpoint for a while, one at a time reopens it."""
        known = self.known.get(address)
        if known is None:
            return
        known.failed = known.failed + 1 if failed else 0
        if known.failed >= self.rules.failed_after:
            known.closed_until_s = self.clock() + self.rules.failed_s
            self.publish([address])

    async def run(self) -> None:
        """Scrape for ever: endpoints in turn over each round, so that picks never wait behind all of them."""
        asked: dict[str, asyncio.Task[None]] = {}
        async with page_client(self.rules.timeout_s) as client:
            gate = asyncio.Semaphore(AT_ONCE)
            try:
                while True:
                    await self._round(client, gate, asked)
                    asked = {address: task for address, task in asked.items() if not task.done()}
                    self.pool.tick()
            finally:
                for task in asked.values():
                    task.cancel()
                await asyncio.gather(*asked.values(), return_exceptions=True)

    async def _round(
        self, client: aiohttp.ClientSession, gate: asyncio.Semaphore, asked: dict[str, asyncio.Task[None]]
    ) -> None:
        """Tell of every endpoint and ask it, in `every_s`; one that has not answered yet is not asked again."""
        addresses = list(self.endpoints)
        turns = max(1, math.ceil(len(addresses) / TOGETHER))
        for turn in range(turns):
            together = addresses[turn::turns]
            self.publish(together)
            if self.rules.every_s > 0:
                for address in [a for a in together if a not in asked or asked[a].done()]:
                    asked[address] = asyncio.create_task(self._scrape(client, gate, address))
            await asyncio.sleep((self.rules.every_s or 1.0) / turns)

    def publish(self, addresses: Iterable[str]) -> None:
        """Tell the pool what is known now of those that are still endpoints."""
        now = self.clock()
        for address in addresses:
            if (e := self.endpoints.get(address)) is not None:
                self.pool.report(self._state(e, self.known[address], now))

    async def _scrape(self, client: aiohttp.ClientSession, gate: asyncio.Semaphore, address: str) -> None:
        async with gate:
            asked, ours = self.clock(), self._ours(address)
            reason, load = "", None
            try:
                page = await fetch(client, f"http://{address}{self.rules.path}", self.rules.max_bytes)
                load = read_load(page.decode("utf-8", "replace"))
                reason = "" if load is not None else "no_load"
            except TimeoutError:  # first, as some of them are the others too
                reason = "timeout"
            except aiohttp.ClientConnectorError:
                reason = "refused"
            except (aiohttp.ClientError, OSError, ValueError):
                reason = "bad_page"
        if reason:
            self.counters.add("scrape_failures", reason)
        if (known := self.known.get(address)) is not None:
            known.refused = known.refused + 1 if reason == "refused" else 0
            if load is not None:
                known.load, known.load_s = load, asked
                ours |= self._ours(address)  # the page may or may not hold those that began or ended meanwhile
                known.others = max(0, load.running + load.waiting - len(ours))
                if load.waiting > 0 and load.running > 0:  # a queue forms only where all slots are taken
                    known.slots = load.running
                self.publish([address])

    def _ours(self, address: str) -> frozenset[str]:
        """Our calls there."""
        cluster = self.pool.lanes.cluster
        return cluster.on(address) if address in cluster.index else frozenset()

    def _state(self, e: Endpoint, known: Known, now: float) -> ReplicaState:
        """Our calls are counted as they are now, the others as in the last report."""
        load = known.load if known.load is not None and now - known.load_s <= self.rules.stale_s else None
        capacity = e.kv_capacity_tokens or (known.load.kv_capacity_tokens if known.load else None) or LARGE
        here = len(self._ours(e.address)) + (known.others if load else 0)
        waiting = min(load.waiting, here) if load else 0
        return ReplicaState(
            id=e.address,
            model=self.rules.model,
            device=e.device,
            slots=e.slots or known.slots or self.rules.slots,
            context_tokens=e.context_tokens or self.rules.context_tokens,
            kv_capacity_tokens=capacity,
            running=here - waiting,
            waiting=waiting,
            kv_tokens=int(load.kv_share * capacity) if load and capacity < LARGE else 0,
            draining=e.draining,
            breaker_open=known.refused >= self.rules.refused_after or now < known.closed_until_s,
            speed=e.speed,
            reported_s=now,
        )

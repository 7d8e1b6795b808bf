"""The external scaler as a process: looks at pickers and gateways, asks the scaler, tells KEDA or sets the
replicas itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import aiohttp

from swarmx.adapters.books import MAX_PAGE_BYTES, PAGE_S, Books, Page, read_page
from swarmx.adapters.envoy.pages import as_json, serve_pages
from swarmx.adapters.fetch import fetch, page_client
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.keda.server import KedaServer
from swarmx.adapters.keda.settings import ExternalScalerSettings, PoolScaling
from swarmx.adapters.keda.states import sample_of, unserved_of
from swarmx.errors import BadInput
from swarmx.scaler import Scaler
from swarmx.scaling import scaling_preset, within
from swarmx.scaling.decisions import Scale, ScaleReceipt
from swarmx.scaling.samples import PoolSample

if TYPE_CHECKING:
    from swarmx.adapters.kubernetes.scale import Workload

log = logging.getLogger(__name__)
RECEIPTS = 50  # kept for each pool


@dataclass(slots=True)
class Watched:
    """What is known of one pool. seen_s : when a picker last answered; unserved : its count then

    awake_until_s : until then it keeps one replica, for calls that found none
    receipts : of the last decisions that changed something or were changed on their way
    """

    settings: PoolScaling
    scaler: Scaler
    decided: Scale | None = None
    seen_s: float | None = None
    unserved: float = 0.0
    awake_until_s: float = 0.0
    receipts: deque[ScaleReceipt] = field(default_factory=lambda: deque(maxlen=RECEIPTS))


class ExternalScaler:
    """Implements `swarmx.adapters.keda.server.Wanted`."""

    def __init__(self, settings: ExternalScalerSettings) -> None:
        self.settings, self.clock = settings, Clock().now
        self.watched = {name: Watched(pool, _scaler(pool)) for name, pool in settings.pools.items()}
        self.books = Books(max(pool.stale_s for pool in settings.pools.values()))
        self.headers = {url: _headers(pool) for pool in settings.pools.values() for url in pool.sources}

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(self.watched)

    def wanted_replicas(self, pool: str) -> float | None:
        """As last decided; None before the first decision and when no picker has answered for `stale_s`."""
        watched = self.watched[pool]
        if watched.decided is None or watched.seen_s is None:
            return None
        stale = self.clock() - watched.seen_s > watched.settings.stale_s
        return None if stale else float(watched.decided.target)

    async def look(self, client: aiohttp.ClientSession, workloads: Mapping[str, Workload]) -> dict[str, Scale]:
        """Ask every pool's pickers and decide; pools whose pickers are silent keep their last decision.

        workloads : where they are known, replicas that are ordered and not yet endpoints count as starting
        """
        found = await asyncio.gather(*(_page_at(client, url, headers) for url, headers in self.headers.items()))
        pages = {url: page for url, page in zip(self.headers, found, strict=True) if page is not None}
        now = self.clock()
        for url, page in pages.items():
            self.books.put(url, page, now)
        decided = {}
        for name in self.watched:
            if (scale := await self._look_at(name, pages, workloads.get(name))) is not None:
                decided[name] = scale
        return decided

    async def _look_at(self, name: str, found: Mapping[str, Page], workload: Workload | None) -> Scale | None:
        watched = self.watched[name]
        sources = [url for url in watched.settings.sources if url in found and found[url].get("synced")]
        if not sources:
            log.warning("pool %s: no picker answers, its replicas stay", name)
            return None
        now, pages = self.clock(), [found[url] for url in sources]
        ordered = await _ordered(workload)
        demand = self.books.demand(watched.settings.model or name, sources, now)
        if demand is not None and demand.edges_s[-1] <= watched.settings.cold_s:
            ahead, cold = demand.edges_s[-1], watched.settings.cold_s
            self.books.warn(f"pool {name}: replicas take {cold:g} s to start, demand is known for {ahead:g} s alone; "
                            f"set demand.horizon_s to {1.5 * cold:g}")  # fmt: skip
        sample = sample_of(name, pages, now, watched.settings.cold_s, watched.unserved, ordered, demand)
        watched.unserved, watched.seen_s = unserved_of(pages), now
        for scale in watched.scaler.step([sample]):
            watched.decided = _awake(watched, scale, sample, now)
            if scale.receipt is not None and (scale.is_change or scale.receipt.changes):
                watched.receipts.append(scale.receipt)
            return watched.decided
        return None

    def receipts(self) -> list[dict[str, Any]]:
        """The kept receipts of every pool, oldest first, for `swarmx explain POOL --url`."""
        return [asdict(receipt) for watched in self.watched.values() for receipt in watched.receipts]

    def state(self) -> dict[str, Any]:
        """Decisions and their reasons, for people."""
        rows = {}
        for name, watched in self.watched.items():
            receipt = watched.decided.receipt if watched.decided else None
            rows[name] = {
                "wanted": self.wanted_replicas(name),
                "why": receipt.why if receipt else "",
                "changes": list(receipt.changes) if receipt else [],
            }
        return rows


def _awake(watched: Watched, scale: Scale, sample: PoolSample, now: float) -> Scale:
    """One replica at least while calls come in vain, and until a replica ordered for them has had time to come up."""
    if sample.committed == 0 and (sample.waiting or 0) > 0:
        watched.awake_until_s = now + 2 * watched.settings.cold_s
    if scale.target > 0 or now >= watched.awake_until_s:
        return scale
    return replace(scale, target=1, add={} if sample.committed else {"default": 1}, cancel=(), drain=())


async def run_scaler(settings: ExternalScalerSettings, stopped: asyncio.Event) -> None:
    """Serve until `stopped` is set. Raises BadInput when direct mode meets an HPA on its target."""
    scaler = ExternalScaler(settings)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(page_client(PAGE_S))
        workloads = await _workloads(settings, stack)
        shown = {"/state": lambda: as_json(scaler.state()), "/receipts": lambda: as_json(scaler.receipts())}
        pages = await serve_pages(settings.metrics_listen, shown, lambda: True)
        stack.callback(pages.close)
        if settings.mode == "keda":
            server = KedaServer(scaler)
            await server.start(settings.listen)
            stack.push_async_callback(server.stop)
        while not stopped.is_set():
            for pool, scale in (await scaler.look(client, workloads)).items():
                if pool in workloads:
                    await _carry_out(workloads[pool], scale, settings.mode == "direct")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), settings.every_s)


async def _page_at(client: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Page | None:
    """What a picker or gateway publishes; None for whatever goes wrong."""
    try:
        return read_page(await fetch(client, url, MAX_PAGE_BYTES, headers))
    except (aiohttp.ClientError, OSError, ValueError):  # a timeout is an OSError
        return None


async def _carry_out(workload: Workload, scale: Scale, direct: bool) -> None:
    """With KEDA only the order of leaving is ours; directly, the number too."""
    try:
        if direct:
            await workload.carry_out(scale)
        else:
            await workload.mark(scale.drain, scale.resume, drain=False)
    except Exception as problem:  # the next look tries again
        log.warning("%s could not be changed: %s", workload.name, problem)


async def _workloads(settings: ExternalScalerSettings, stack: contextlib.AsyncExitStack) -> dict[str, Workload]:
    targets = {name: pool.target for name, pool in settings.pools.items() if pool.target is not None}
    if not targets:
        return {}
    from swarmx.adapters.kubernetes.client import in_cluster
    from swarmx.adapters.kubernetes.scale import Workload

    api = await stack.enter_async_context(in_cluster())
    found = {name: Workload(api, t.kind, t.namespace or api.namespace, t.name) for name, t in targets.items()}
    if settings.mode == "direct":
        for workload in found.values():
            await workload.check_alone()
    return found


async def _ordered(workload: Workload | None) -> int | None:
    """Replicas that the workload is to have; None where that is not known."""
    try:
        return None if workload is None else await workload.replicas()
    except Exception as problem:  # the sample is then as without a workload
        log.warning("the replicas of %s are not known: %s", workload.name if workload else "", problem)
        return None


def _headers(pool: PoolScaling) -> dict[str, str]:
    """With the token that the pages ask for, if they do. Raises BadInput when its variable is not set."""
    if pool.token_env is None:
        return {}
    if not (token := os.environ.get(pool.token_env)):
        raise BadInput(f"environment variable {pool.token_env} is not set; it should hold the pages' token")
    return {"Authorization": f"Bearer {token}"}


def _scaler(pool: PoolScaling) -> Scaler:
    bounds = within(pool.policy, minimum=pool.minimum, maximum=pool.maximum)
    policy, bounds = scaling_preset(pool.policy, bounds, **pool.options)
    return Scaler(pool.policy, policy, bounds)

"""Keeps an eye on the replicas: health probes, their metrics, and which replicas there are."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.replica import Replica
from swarmx.adapters.gateway.scrape import read_metrics
from swarmx.adapters.settings import DnsDiscovery, FileDiscovery, ReplicaSettings
from swarmx.errors import BadInput

log = logging.getLogger(__name__)
MAX_METRICS_BYTES = 8 * 2**20


class Monitor:
    """Watches the replicas of one pool."""

    def __init__(self, pool: Pool, session: aiohttp.ClientSession) -> None:
        self.pool = pool
        self.session = session
        self.timeout = aiohttp.ClientTimeout(total=pool.upstream.health_timeout_s)
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watch every replica, also those that come later; never returns."""
        discovery = asyncio.create_task(self._discover()) if self.pool.settings.discover else None
        try:
            while True:
                for name in set(self._watches) - set(self.pool.replicas):
                    self._watches.pop(name).cancel()
                for name, replica in self.pool.replicas.items():
                    if name not in self._watches:
                        self._watches[name] = asyncio.create_task(self._watch(replica))
                await asyncio.sleep(0.2)
        finally:
            for task in [*self._watches.values(), *([discovery] if discovery else [])]:
                task.cancel()

    async def _watch(self, replica: Replica) -> None:
        every = self.pool.upstream.health_every_s
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._look(replica)
            except Exception:  # one odd answer must not end the watch
                log.exception("replica %s cannot be watched", replica.id)
            await asyncio.sleep(max(0.05, every - (asyncio.get_running_loop().time() - started)))

    async def _look(self, replica: Replica) -> None:
        """One probe, and where it is answered one look at the metrics."""
        pool = self.pool
        if await self._get(replica, "/health") is None:
            if replica.probe_failed(pool.upstream.unhealthy_after):
                log.warning("replica %s does not answer", replica.id)
                pool.replica_lost(replica, "replica_lost")
            return
        if replica.probe_answered(pool.clock.now()):
            pool.sync()
            await self._read_models(replica)
        before = replica.in_flight
        text = await self._get(replica, "/metrics")
        if text:
            seen = read_metrics(text, replica.observed, max(before, replica.in_flight), pool.clock.now())
            if seen is not None:
                replica.observed = seen
                pool.changed()

    async def _get(self, replica: Replica, path: str) -> str | None:
        """The body of a GET; empty where the server lacks the path, None when it is ill or silent."""
        try:
            headers = replica.authorization()
            async with self.session.get(
                replica.settings.url + path, timeout=self.timeout, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status >= 500:
                    return None
                raw = await answer.content.read(MAX_METRICS_BYTES)
                return raw.decode("utf-8", "replace") if answer.status == 200 else ""
        except (aiohttp.ClientError, OSError):
            return None

    async def _read_models(self, replica: Replica) -> None:
        """Its context length, where it says so."""
        text = await self._get(replica, "/v1/models")
        try:
            models = yaml.safe_load(text or "{}").get("data") or []
        except (yaml.YAMLError, AttributeError):
            return
        for model in models if isinstance(models, list) else []:
            length = model.get("max_model_len") if isinstance(model, dict) else None
            if isinstance(length, int) and length > 1:
                replica.observed = replace(replica.observed, context_tokens=length)
                self.pool.changed()

    # ---- which replicas there are ---------------------------------------------------------------------------------

    async def _discover(self) -> None:
        settings = self.pool.settings.discover
        assert settings is not None
        seen: Any = None
        while True:
            try:
                if isinstance(settings, DnsDiscovery):
                    found = await resolve(settings)
                    self._adopt(found, "dns")
                else:
                    stamp = settings.path.stat().st_mtime_ns
                    if stamp != seen:
                        self._adopt(read_replica_file(settings), "file")
                        seen = stamp
            except (OSError, BadInput) as problem:
                log.warning("discovery of pool %s keeps what it has: %s", self.pool.name, problem)
            await asyncio.sleep(settings.every_s)

    def _adopt(self, found: list[ReplicaSettings], source: str) -> None:
        """Add what is new, let what is gone run dry; replicas from other sources stay."""
        names = {r.name for r in found}
        for settings in found:
            known = self.pool.replicas.get(settings.name)
            if known is None or known.settings != settings or known.leaving:
                self.pool.add_replica(settings, source)
        for replica in list(self.pool.replicas.values()):
            if replica.source == source and replica.id not in names and not replica.leaving:
                self.pool.drain(replica, leave=True)
        self.pool.sync()


async def resolve(settings: DnsDiscovery) -> list[ReplicaSettings]:
    """One replica per address of the host. Raises OSError when it cannot be resolved."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    addresses = sorted({str(info[4][0]) for info in infos})
    hosts = [f"[{a}]" if ":" in a else a for a in addresses]
    return [ReplicaSettings(url=f"http://{host}:{settings.port}", **settings.template) for host in hosts]


def read_replica_file(settings: FileDiscovery) -> list[ReplicaSettings]:
    """The list of replicas in a file. Raises OSError or BadInput."""
    return parse_replicas(settings.path)


def parse_replicas(path: Path) -> list[ReplicaSettings]:
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:  # a date may have a 13th month
        raise BadInput(f"{path}: not YAML ({str(problem).splitlines()[0]})") from None
    if not isinstance(rows, list):
        raise BadInput(f"{path}: must hold a list of replicas, each with a url")
    try:
        return [ReplicaSettings.model_validate(row) for row in rows]
    except ValueError as problem:
        raise BadInput(f"{path}: {problem}") from None

"""A real gateway and real emulated replicas on loopback, in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from openai import AsyncOpenAI

from swarmx.adapters.gateway.access import digest
from swarmx.adapters.gateway.gateway import Gateway, GatewaySettings
from swarmx.adapters.gateway.listening import port_of
from swarmx.adapters.gateway.settings import ServerSettings
from swarmx.adapters.mock_replica import HiddenRule, MockOptions, mock_app
from swarmx.adapters.settings import LogSettings, PoolSettings, SchedulerSettings
from swarmx.engine import EngineConstants
from swarmx.sim.cluster import ReplicaSpec

ADMIN_TOKEN = "admin-token-of-the-tests"
SPEC = ReplicaSpec(
    "r", slots=4, service=EngineConstants(0.002, 0.0002, 0.0, 1e-5), kv_capacity_tokens=50_000, block_tokens=16
)


@dataclass
class Running:
    """What a test talks to."""

    gateway: Gateway
    mocks: list[Mock]
    http: aiohttp.ClientSession
    openai: AsyncOpenAI = field(init=False)

    def __post_init__(self) -> None:
        self.openai = AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.gateway.admin_port}"

    @property
    def admin_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {ADMIN_TOKEN}"}

    async def state(self) -> dict[str, Any]:
        async with self.http.get(f"{self.admin}/admin/state", headers=self.admin_headers) as answer:
            assert answer.status == 200
            return dict(await answer.json())

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, Any, Mapping[str, str]]:
        async with self.http.post(self.url + path, json=body, **kwargs) as answer:
            return answer.status, await answer.json(content_type=None), answer.headers

    async def chat(self, text: str = "hello", **kwargs: Any) -> tuple[int, Any, Mapping[str, str]]:
        body = {"model": "mock", "messages": [{"role": "user", "content": text}], **kwargs.pop("body", {})}
        return await self.post("/v1/chat/completions", body, **kwargs)


@dataclass
class Mock:
    """One emulated replica that can be stopped and started again on its port."""

    spec: ReplicaSpec
    options: MockOptions
    port: int = 0
    runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.runner = web.AppRunner(
            mock_app(self.spec, self.options), access_log=None, handler_cancellation=True, shutdown_timeout=0.05
        )
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = port_of(site._server)  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Drop every connection and listen no more."""
        if self.runner is None:
            return
        assert self.runner.server is not None
        for connection in self.runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self.runner.cleanup()
        self.runner = None

    async def fault(self, http: aiohttp.ClientSession, **fault: Any) -> None:
        async with http.post(f"{self.url}/mock/fault", json=fault) as answer:
            assert answer.status == 200


@asynccontextmanager
async def mocks(count: int, spec: ReplicaSpec = SPEC, options: MockOptions | None = None) -> AsyncIterator[list[Mock]]:
    options = options or MockOptions(rule=HiddenRule(mean_tokens=20, cv=0.5))
    started = [Mock(replace(spec, id=f"r{i}", batched=True), options) for i in range(count)]
    for mock in started:
        await mock.start()
    try:
        yield started
    finally:
        for mock in started:
            await mock.stop()


@asynccontextmanager
async def running(
    replicas: int = 2,
    *,
    spec: ReplicaSpec = SPEC,
    options: MockOptions | None = None,
    server: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    mode: str | float = "on",
    preset: str = "late",
    log: Path | None = None,
    prompt: str = "hash",
    journal: bool = False,
    receipts: int = 10_000,
    urls: Sequence[str] | None = None,
) -> AsyncIterator[Running]:
    """Start everything; stop it, with a check that nothing was left over."""
    async with mocks(replicas, spec, options) as started, aiohttp.ClientSession() as http:
        settings = GatewaySettings(
            pools={"mock": PoolSettings.model_validate({
                "replicas": [{"url": u, "slots": spec.slots, "id": f"r{i}"}
                             for i, u in enumerate(urls or [m.url for m in started])],
                **(pool or {}),
            })},
            server=server_settings(server or {}),
            scheduler=SchedulerSettings(preset=preset),
            log=LogSettings.model_validate(
                {"directory": log, "prompt": prompt, "rotate_s": 0.2 if log else 600, "journal": journal,
                 "receipts": receipts}
            ),
            mode=mode,
        )  # fmt: skip
        gateway = Gateway(settings)
        await gateway.start()
        run = Running(gateway, started, http)
        try:
            yield run
        finally:
            await run.openai.close()
            await gateway.stop()
            assert gateway.state.in_flight == 0


def server_settings(server: Mapping[str, Any]) -> ServerSettings:
    upstream = {"health_every_s": 0.1, "health_timeout_s": 0.3, "unhealthy_after": 2, **server.get("upstream", {})}
    return ServerSettings.model_validate({
        "port": 0,
        "admin": {"port": 0, "token_sha256": digest(ADMIN_TOKEN)},
        "drain_s": 5,
        **server,
        "upstream": upstream,
    })  # fmt: skip

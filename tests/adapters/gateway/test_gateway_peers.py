"""Two gateways over one pool."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from gateway_harness import mocks, server_settings
from patience import until

from swarmx.adapters.gateway.gateway import Gateway, GatewaySettings
from swarmx.adapters.mock_replica import HiddenRule, MockOptions
from swarmx.adapters.settings import PoolSettings

pytestmark = pytest.mark.asyncio
SECRET = "a secret of two gateways"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def two(monkeypatch: pytest.MonkeyPatch, mean_tokens: float) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """(the owner of the pool, the other one)."""
    monkeypatch.setenv("PEER_SECRET", SECRET)
    ports = [_free_port(), _free_port()]
    options = MockOptions(rule=HiddenRule(mean_tokens=mean_tokens, cv=0.01))
    async with mocks(2, options=options) as started:
        gateways = []
        for me, other in (ports, ports[::-1]):
            peers = {
                "me": f"http://127.0.0.1:{me}", "others": [f"http://127.0.0.1:{other}"], "secret_env": "PEER_SECRET",
                "every_s": 0.05, "dead_after_s": 0.5,
            }  # fmt: skip
            pool = PoolSettings.model_validate({"replicas": [{"url": m.url, "slots": 4} for m in started]})
            settings = server_settings({"port": me, "peers": peers})
            gateways.append(Gateway(GatewaySettings({"mock": pool}, settings)))
            await gateways[-1].start()
        await asyncio.sleep(0.3)  # they have found each other
        try:
            await _chat(gateways[0])
            owner = next(g for g in gateways if g.state.latest())
            yield owner, next(g for g in gateways if g is not owner)
        finally:
            for gateway in gateways:
                await gateway.stop()


async def _chat(gateway: Gateway, text: str = "hello", **headers: str) -> int:
    body = {"model": "mock", "messages": [{"role": "user", "content": text}]}
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
        async with http.post(url, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status


async def test_one_of_them_queues_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(monkeypatch, 20) as (owner, other):
        statuses = await asyncio.gather(*(_chat(g, f"{i}") for i in range(6) for g in (owner, other)))
        assert statuses == [200] * 12
        assert len(owner.state.latest()) == 13 and not other.state.latest()


async def test_a_forwarded_call_keeps_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(monkeypatch, 20) as (owner, other):
        await _chat(other, **{"x-swarmx-tenant": "blue", "x-swarmx-call-id": "mine"})
        assert owner.state.latest()[0]["tenant"] == "blue" and owner.state.latest()[0]["call_id"] == "mine"


async def test_losing_the_owner_loses_no_call_that_waits_there_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(monkeypatch, 500) as (owner, other):
        calls = [asyncio.create_task(_chat(other, f"call {i}")) for i in range(24)]  # 8 run, 16 wait at the owner
        await until(lambda: owner.state.in_flight == 24)
        server = owner._runners[0].server
        assert server is not None
        owner._servers[0].close()
        for connection in server.connections:  # as when the process dies
            if connection.transport is not None:
                connection.transport.abort()
        assert await asyncio.gather(*calls) == [200] * 24
        assert len(other.state.latest()) >= 16


async def test_a_wrong_secret_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(monkeypatch, 20) as (owner, other):
        # without the secret the header means nothing: the call is forwarded like any other
        assert await _chat(other, **{"x-swarmx-peer": "guess"}) == 200
        assert not other.state.latest() and len(owner.state.latest()) == 2

"""A stateful emulation of the Kubernetes API (kmock) on loopback, and a line to it that can be disturbed."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import kmock
import yarl
from aiohttp import web
from kmock import KubernetesEmulator
from kmock._internal import apps

from swarmx.adapters.kubernetes.client import Api, api_client

POOLS = kmock.resource("inference.networking.k8s.io/v1/inferencepools")
PODS = kmock.resource("v1/pods")
LEASES = kmock.resource("coordination.k8s.io/v1/leases")
HPAS = kmock.resource("autoscaling/v2/horizontalpodautoscalers")


@dataclass(frozen=True)
class Asked:
    """A request as it came over the line."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes


class Cut(web.Response):
    """An answer that breaks off in the middle of a line."""


Disturb = Callable[[Asked], web.Response | None]


class Line:
    """A server that passes requests on, unless a disturbance answers first, or it hangs; keeps what was sent.

    disturb : returns the answer; a ConnectionError that it raises breaks the connection
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.disturb: Disturb = lambda asked: None
        self.seen: list[Asked] = []
        self.hangs = False

    @property
    def watches(self) -> list[Asked]:
        return [r for r in self.seen if r.query.get("watch")]

    @asynccontextmanager
    async def listening(self, trust: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Its address, for the length of the block."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        async with aiohttp.ClientSession() as self.inner:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
            try:
                host, port = runner.addresses[0][:2]
                yield f"{'https' if trust else 'http'}://{host}:{port}"
            finally:
                await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        asked = Asked(request.method, request.path, request.query, request.headers, content)
        self.seen.append(asked)
        if self.hangs:
            await asyncio.sleep(60)
        try:
            said = self.disturb(asked)
        except ConnectionError:
            return self._broken(request, web.StreamResponse())
        if isinstance(said, Cut):
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(b'{"type": "ADDED", "obj')
            return self._broken(request, answer)
        return said or await self._pass_on(request, content)

    @staticmethod
    def _broken(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def _pass_on(self, request: web.Request, content: bytes) -> web.StreamResponse:
        url = yarl.URL(self.target + request.path_qs, encoded=True)
        headers = {name: value for name, value in request.headers.items() if name.lower() == "content-type"}
        async with self.inner.request(request.method, url, data=content, headers=headers) as got:
            answer = web.StreamResponse(status=got.status, headers={"content-type": got.headers["content-type"]})
            await answer.prepare(request)
            async for piece in got.content.iter_any():
                await answer.write(piece)
            return answer


@asynccontextmanager
async def connected(target: str, token: Path | None = None) -> AsyncIterator[tuple[Api, Line]]:
    """To the server at that address, over a line."""
    line = Line(target)
    async with line.listening() as url, api_client(url) as client:
        yield Api(client, token, "default"), line


@asynccontextmanager
async def cluster(token: Path | None = None) -> AsyncIterator[tuple[KubernetesEmulator, Api, Line]]:
    emulator = KubernetesEmulator()
    async with emulator as k, apps.Server(k):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of kmock's own reading of its data
            k.resources.load_bundled()
        k.resources[POOLS] = {}
        async with connected(str(k.url).rstrip("/"), token) as (api, line):
            yield k, api, line


_versions = itertools.count(100)


def pod(name: str, ip: str, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    meta = {"name": name, "namespace": "default", "labels": {"app": "llm"}, "resourceVersion": str(next(_versions))}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {**meta, **metadata},
        "status": {"phase": "Running", "podIP": ip, "conditions": conditions},
    }  # fmt: skip


def status(code: int, reason: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}
    return web.json_response(body, status=code)

"""A stateful emulation of the Kubernetes API (kmock) on loopback, and a line to it that can be disturbed."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import kmock
from kmock import KubernetesEmulator
from kmock._internal import apps

from swarmx.adapters.kubernetes.client import Api

POOLS = kmock.resource("inference.networking.k8s.io/v1/inferencepools")
PODS = kmock.resource("v1/pods")
LEASES = kmock.resource("coordination.k8s.io/v1/leases")
HPAS = kmock.resource("autoscaling/v2/horizontalpodautoscalers")
Disturb = Callable[[httpx.Request], httpx.Response | None]


class Line(httpx.AsyncBaseTransport):
    """Passes requests on, unless a disturbance answers first, or it hangs; keeps what was sent."""

    def __init__(self) -> None:
        self.inner = httpx.AsyncHTTPTransport()
        self.disturb: Disturb = lambda request: None
        self.seen: list[httpx.Request] = []
        self.hangs = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if self.hangs:
            await asyncio.sleep(60)
        return self.disturb(request) or await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()

    @property
    def watches(self) -> list[httpx.Request]:
        return [r for r in self.seen if r.url.params.get("watch")]


@asynccontextmanager
async def cluster(token: Path | None = None) -> AsyncIterator[tuple[KubernetesEmulator, Api, Line]]:
    emulator, line = KubernetesEmulator(), Line()
    async with emulator as k, apps.Server(k):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of kmock's own reading of its data
            k.resources.load_bundled()
        k.resources[POOLS] = {}
        async with httpx.AsyncClient(base_url=str(k.url).rstrip("/"), transport=line, timeout=5.0) as client:
            yield k, Api(client, token, "default"), line


_versions = itertools.count(100)


def pod(name: str, ip: str, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    meta = {"name": name, "namespace": "default", "labels": {"app": "llm"}, "resourceVersion": str(next(_versions))}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {**meta, **metadata},
        "status": {"phase": "Running", "podIP": ip, "conditions": conditions},
    }  # fmt: skip


def status(code: int, reason: str) -> httpx.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}
    return httpx.Response(code, json=body)


async def until(true: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)

"""The picker's gRPC services: external processing and health checks on one port, with a drain at the end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf.message import DecodeError

from swarmx.adapters.envoy.http2 import GrpcServer
from swarmx.adapters.envoy.messages import (
    HEALTH,
    NOT_SERVING,
    PROCESS,
    SERVICE_UNKNOWN,
    SERVING,
    health,
    pb,
)
from swarmx.adapters.envoy.pool import Pool
from swarmx.adapters.envoy.rpc import INTERNAL, NOT_FOUND, Rpc, RpcError
from swarmx.adapters.envoy.stream import Stream, StreamRules

log = logging.getLogger(__name__)
WATCH_S = 0.5  # between two looks for a watcher of the health


class PickerServer:
    """ready : whether this picker should get traffic (endpoints known, and owner of the queue where one is elected)"""

    def __init__(self, pool: Pool, rules: StreamRules, ready: Callable[[], bool], seed: int = 0) -> None:
        self.pool, self.rules, self.ready = pool, rules, ready
        self.draining = False
        self._rng = Random(seed)
        service, method = PROCESS
        self._server = GrpcServer(
            {f"/{service}/{method}": self._process, f"/{HEALTH}/Check": self._check, f"/{HEALTH}/Watch": self._watch}
        )

    async def start(self, address: str, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. tls None serves plain HTTP/2. Raises OSError when the address is taken."""
        return await self._server.start(address, tls)

    async def drain(self, grace_s: float) -> None:
        """Say not ready, take no new streams, let those in hand end; after grace_s cut what is left."""
        self.draining = True
        await self._server.drain(grace_s)

    async def _process(self, rpc: Rpc) -> None:
        stream = Stream(self.pool, self.rules, self._rng)
        try:
            while (raw := await rpc.read()) is not None:
                for answer in await stream.on(parsed(pb.ProcessingRequest, raw)):
                    await rpc.write(answer)
        finally:
            stream.close()

    def status_of(self, service: str) -> int:
        """Health of a service name, as the endpoint picker protocol names them."""
        if service == "liveness":
            return SERVING
        if service in ("", "readiness", PROCESS[0]):
            return SERVING if self.ready() and not self.draining else NOT_SERVING
        return SERVICE_UNKNOWN

    async def _check(self, rpc: Rpc) -> None:
        service = parsed(health.HealthCheckRequest, await rpc.read() or b"").service
        status = self.status_of(service)
        if status == SERVICE_UNKNOWN:
            raise RpcError(NOT_FOUND, f"unknown service {service!r}")
        await rpc.write(health.HealthCheckResponse(status=status).SerializeToString())

    async def _watch(self, rpc: Rpc) -> None:
        service = parsed(health.HealthCheckRequest, await rpc.read() or b"").service
        last = -1
        while not (self.draining and last == NOT_SERVING):  # a watcher must not hold up the drain
            if (status := self.status_of(service)) != last:
                last = status
                await rpc.write(health.HealthCheckResponse(status=status).SerializeToString())
            await asyncio.sleep(WATCH_S)


def parsed(kind: Any, raw: bytes) -> Any:
    """The message. Raises RpcError for bytes that are none."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise RpcError(INTERNAL, "a message cannot be read") from None

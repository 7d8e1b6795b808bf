"""The gRPC server: external processing and health checks on one port, with a drain at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import grpc
import grpc.aio

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
from swarmx.adapters.envoy.seen import Watcher
from swarmx.adapters.envoy.stream import Stream, StreamRules
from swarmx.errors import BadInput

log = logging.getLogger(__name__)
OPTIONS = (
    ("grpc.max_concurrent_streams", 100_000),
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
)


class PickerServer:
    """ready : whether this picker should get traffic (endpoints known, and owner of the queue where one is elected)"""

    def __init__(self, pool: Pool, rules: StreamRules, ready: Callable[[], bool], seed: int = 0) -> None:
        self.pool, self.rules, self.ready = pool, rules, ready
        self.draining = False
        self._rng = Random(seed)
        self._server: Any = None

    async def start(self, address: str, tls: tuple[bytes, bytes] | None = None) -> int:
        """Listen; returns the port. tls : (certificate chain, key) in PEM; None serves plain HTTP/2.

        Raises BadInput when the address cannot be used.
        """
        self._server = grpc.aio.server(options=OPTIONS)
        process = grpc.stream_stream_rpc_method_handler(self._process, pb.ProcessingRequest.FromString, None)
        check = grpc.unary_unary_rpc_method_handler(
            self._check, health.HealthCheckRequest.FromString, health.HealthCheckResponse.SerializeToString
        )
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch, health.HealthCheckRequest.FromString, health.HealthCheckResponse.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(PROCESS[0], {PROCESS[1]: process}),
                grpc.method_handlers_generic_handler(HEALTH, {"Check": check, "Watch": watch}),
            )
        )
        try:
            if tls is None:
                port: int = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([(tls[1], tls[0])]))
        except RuntimeError:
            raise BadInput(f"cannot listen on {address}, which is taken or not of this machine; name another") from None
        await self._server.start()
        return port

    async def drain(self, grace_s: float) -> None:
        """Say not ready, take no new streams, let those in hand end; after grace_s cut what is left."""
        self.draining = True
        await self._server.stop(grace_s)

    async def _process(self, _: Any, context: Any) -> None:
        stream: Stream | Watcher | None = None
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                if stream is None:
                    watches = message.observability_mode
                    stream = Watcher(self.pool) if watches else Stream(self.pool, self.rules, self._rng)
                for answer in await stream.on(message):
                    await context.write(answer)
        finally:
            if stream is not None:
                stream.close()

    def status_of(self, service: str) -> int:
        """Health of a service name, as the endpoint picker protocol names them."""
        if service == "liveness":
            return SERVING
        if service in ("", "readiness", PROCESS[0]):
            return SERVING if self.ready() and not self.draining else NOT_SERVING
        return SERVICE_UNKNOWN

    async def _check(self, request: Any, context: Any) -> Any:
        status = self.status_of(request.service)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {request.service!r}")
        return health.HealthCheckResponse(status=status)

    async def _watch(self, request: Any, _: Any) -> AsyncIterator[Any]:
        last = -1
        while not (self.draining and last == NOT_SERVING):  # a watcher must not hold up the drain
            if (status := self.status_of(request.service)) != last:
                last = status
                yield health.HealthCheckResponse(status=status)
            await asyncio.sleep(0.5)

"""Sockets that listen: a limit on connections, none that dawdles, TLS where it is wanted."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from aiohttp import web

from swarmx.adapters.gateway.settings import LimitSettings, TlsSettings
from swarmx.errors import BadInput


class _Refuser(asyncio.Protocol):
    """Takes a connection and closes it at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


async def _nameless(_: web.Request, response: web.StreamResponse) -> None:
    """Say nothing of versions."""
    response.headers["Server"] = "swarmx"


def runner_of(app: web.Application, limits: LimitSettings) -> web.AppRunner:
    """A runner whose handlers are cancelled when their client goes, and that closes idle and dawdling connections."""
    app.on_response_prepare.append(_nameless)
    return web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=limits.headers_s,
        max_line_size=limits.header_bytes,
        max_field_size=limits.header_bytes,
        shutdown_timeout=1.0,
    )


async def listen(
    runner: web.AppRunner, host: str, port: int, limits: LimitSettings, tls: TlsSettings | None
) -> asyncio.Server:
    """Begin to accept connections. Raises BadInput when the address cannot be used or TLS files cannot be read."""
    server = runner.server
    assert server is not None

    def protocol() -> asyncio.BaseProtocol:
        if len(server.connections) >= limits.connections:
            return _Refuser()
        return cast(asyncio.BaseProtocol, server())

    context = None if tls is None else tls_context(tls)
    try:
        return await asyncio.get_running_loop().create_server(protocol, host, port, ssl=context, backlog=1024)
    except OSError as problem:
        raise BadInput(f"server cannot listen on {host}:{port}: {problem.strerror or problem}") from None


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """TLS 1.2 or later with this certificate. Raises BadInput."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as problem:
        raise BadInput(f"server.tls: {tls.certificate} and {tls.key} cannot be used ({problem})") from None
    return context


def port_of(server: asyncio.Server) -> int:
    """The port that it listens on, which may have been chosen by the system."""
    address: Any = server.sockets[0].getsockname()
    return int(address[1])

"""The picker's HTTP pages: /metrics for Prometheus, /livez and /healthz for probes, /state for people.

A few GET requests per minute from inside the cluster need no web framework; a request that is long, slow or no GET is
cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

from swarmx.errors import BadInput

LONGEST_BYTES = 16 * 1024
PATIENCE_S = 5.0
Page = Callable[[], tuple[str, str]]  # (content type, text)


async def serve_pages(address: str, pages: dict[str, Page], healthy: Callable[[], bool]) -> asyncio.Server:
    """Listen on host:port. Raises BadInput when that cannot be."""
    host, _, port = address.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, pages, healthy))
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # it may not read what is still to be sent
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    try:
        return await asyncio.start_server(serve, host.strip("[]"), int(port), limit=LONGEST_BYTES)
    except (OSError, OverflowError) as problem:  # the latter for a port above 65535
        raise BadInput(f"pages cannot be served on {address} ({problem}); name another address") from None


def _answer(head: bytes, pages: dict[str, Page], healthy: Callable[[], bool]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    path = words[1].split(b"?")[0].decode("ascii", "replace") if len(words) > 1 else ""
    status, kind, text = 404, "text/plain", "not found\n"
    if words[0] != b"GET":
        status, text = 405, "only GET\n"
    elif path == "/livez":
        status, text = 200, "ok\n"
    elif path == "/healthz":
        status, text = (200, "ok\n") if healthy() else (503, "not ready\n")
    elif path in pages:
        status, (kind, text) = 200, pages[path]()
    body = text.encode()
    reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}[status]
    lines = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close"
    return lines.encode() + b"\r\n\r\n" + body


def as_json(data: object) -> tuple[str, str]:
    return "application/json", json.dumps(data, indent=1) + "\n"

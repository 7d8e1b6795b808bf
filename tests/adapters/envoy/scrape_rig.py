"""Metrics endpoints that behave well, ill and worse, and a picture of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.endpoints import Endpoint
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.scrape import Picture, ScrapeRules
from swarmx.types import ReplicaState

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]
GOOD = (
    "vllm:num_requests_running 7\nvllm:num_requests_waiting 2\n"
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="9"} 1\n'
)


class Server:
    """A metrics endpoint that behaves as the handler says. connections, requests : what it has seen, in order"""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.address = handler, ""
        self.connections, self.requests = 0, list[str]()
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing():
                    self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                    await self.handler(writer)
        finally:
            self.writers.discard(writer)
            writer.close()


@asynccontextmanager
async def page(handler: Handler, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Server]:
    here = Server(handler)
    server = await asyncio.start_server(here.serve, host, port)
    here.address = f"[{host}]:" if ":" in host else f"{host}:"
    here.address += str(server.sockets[0].getsockname()[1])
    try:
        yield here
    finally:
        server.close()


def raw(head: str, body: bytes = b"") -> Handler:
    """Says that, and keeps the connection where the head does not say otherwise."""

    async def handler(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        if "connection: close" in head:
            writer.close()

    return handler


def says(text: str) -> Handler:
    return raw("200 OK\r\nconnection: close", text.encode())


def keeps(text: str) -> Handler:
    return raw("200 OK", text.encode())


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def drips(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
    while True:
        writer.write(b"#\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def floods(writer: asyncio.StreamWriter) -> None:  # 10 MB
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
    for _ in range(160):
        writer.write(b"# " + b"x" * 65_533 + b"\n")
        await writer.drain()


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(writer: asyncio.StreamWriter) -> None:
    linger_for_no_time = b"\1\0\0\0\0\0\0\0"
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time)
    writer.transport.abort()


async def breaks_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nvllm:num_requests_running 1\n")
    writer.close()


async def speaks_in_tongues(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    writer.close()


@asynccontextmanager
async def scraping(*addresses: str, **rules: float) -> AsyncIterator[Picture]:
    """A picture that is being drawn for the length of the block."""
    loop = asyncio.get_running_loop()
    counters = Counters()
    pool = Pool(Lanes("push"), loop.time, PickLimits(), counters)
    options = {"every_s": 0.02, "timeout_s": 30.0, "stale_s": 60.0, "max_bytes": 2**20, **rules}
    picture = Picture(pool, ScrapeRules("m", **options), loop.time, counters)  # type: ignore[arg-type]
    picture.set_endpoints(tuple(Endpoint(a) for a in addresses))
    task = asyncio.create_task(picture.run())
    try:
        yield picture
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def states(picture: Picture) -> list[ReplicaState]:
    """What the schedulers know."""
    return picture.pool.lanes.cluster.states


def failures(picture: Picture) -> set[str]:
    """Reasons for which scrapes have failed."""
    lines = picture.counters.text().splitlines()
    return {line.split('"')[1] for line in lines if line.startswith("swarmx_picker_scrape_failures_total{")}

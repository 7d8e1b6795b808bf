"""What endpoints' metrics pages, and whatever else answers there, do to the picture of them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from envoy_rig import until

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.endpoints import Endpoint
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.scrape import TOGETHER, Picture, ScrapeRules
from swarmx.types import Call, ReplicaState

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
    options = {"every_s": 0.02, "timeout_s": 0.2, "stale_s": 0.5, "max_bytes": 2**20, **rules}
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


def test_a_report_reaches_the_scheduler_and_a_full_engine_tells_its_slots() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as server, scraping(server.address) as picture:
            await until(lambda: states(picture)[0].waiting == 2)
            state = states(picture)[0]
            assert (state.running, state.slots, state.kv_capacity_tokens) == (7, 7, 144)

    asyncio.run(run())


BAD = {
    "hangs": (hangs, "timeout"),
    "drips": (drips, "timeout"),
    "10 MB": (floods, "bad_page"),
    "lies": (says("vllm:num_requests_running NaN\n"), "no_load"),
    "no metrics": (says("<html>"), "no_load"),
    "packed": (raw("200 OK\r\ncontent-encoding: gzip", gzip.compress(GOOD.encode())), "no_load"),
    "not found": (raw("404 Not Found", GOOD.encode()), "bad_page"),
    "hangs up": (hangs_up, "bad_page"),
    "resets": (resets, "bad_page"),
    "breaks off": (breaks_off, "bad_page"),
    "no HTTP": (speaks_in_tongues, "bad_page"),
}


@pytest.mark.parametrize(("handler", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_page_spoils_nothing_for_the_others(handler: Handler, reason: str) -> None:
    async def run() -> None:
        async with page(handler) as b, page(says(GOOD)) as g, scraping(b.address, g.address) as picture:
            await until(lambda: picture.counters.total("scrape_failures") >= 4)
            bad_state, good_state = states(picture)
            assert failures(picture) == {reason}
            assert good_state.running == 7
            assert bad_state.running == 0 and not bad_state.breaker_open  # its calls may still be served
            assert set(picture.pool.lanes.usable(None)) == {b.address, g.address}

    asyncio.run(run())


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "[::1", "x" * 64 + ".y:80", ":80"])
def test_an_address_that_cannot_be_asked_is_a_failure_and_no_more(address: str) -> None:
    async def run() -> None:
        async with page(says(GOOD)) as good, scraping(address, good.address) as picture:
            await until(lambda: picture.counters.total("scrape_failures") >= 4)
            assert failures(picture) == {"bad_page"}
            assert [state.running for state in states(picture)] == [0, 7]

    asyncio.run(run())


def test_an_endpoint_may_have_an_ipv6_address() -> None:
    async def run() -> None:
        try:
            at = page(keeps(GOOD), "::1")
            server = await at.__aenter__()
        except OSError as problem:
            pytest.skip(f"no IPv6 here: {problem}")
        async with scraping(server.address) as picture:
            await until(lambda: states(picture)[0].running == 7)
            assert f"host: {server.address}\r\n" in server.requests[0].lower()
        await at.__aexit__(None, None, None)

    asyncio.run(run())


def test_a_page_leads_nowhere_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No redirect is followed, no cookie is sent, no proxy is asked, nothing packed is asked for."""

    async def run() -> None:
        async with page(keeps(GOOD)) as other:
            monkeypatch.setenv("HTTP_PROXY", f"http://{other.address}")
            away = raw(f"302 Found\r\nset-cookie: a=b\r\nlocation: http://{other.address}/metrics")
            async with page(away) as server, scraping(server.address) as picture:
                await until(lambda: len(server.requests) >= 3)
                assert failures(picture) == {"bad_page"} and other.requests == []
                assert all("cookie" not in asked.lower() for asked in server.requests)
                assert all("accept-encoding: identity" in asked.lower() for asked in server.requests)

    asyncio.run(run())


def test_a_connection_is_kept_and_one_that_the_server_has_closed_is_no_failure() -> None:
    async def run() -> None:
        async with page(keeps(GOOD)) as server, scraping(server.address) as picture:
            await until(lambda: len(server.requests) >= 5)
            assert server.connections == 1
            for writer in set(server.writers):
                writer.close()
            await until(lambda: len(server.requests) >= 10)
            assert server.connections == 2 and picture.counters.total("scrape_failures") == 0

    asyncio.run(run())


def test_a_server_that_closes_kept_connections_at_the_next_question_is_never_out() -> None:
    async def run() -> None:
        answered: set[int] = set()

        async def once(writer: asyncio.StreamWriter) -> None:
            if id(writer) in answered:
                writer.close()
            else:
                answered.add(id(writer))
                held.append(writer)
                await keeps(GOOD)(writer)

        held: list[asyncio.StreamWriter] = []  # so that no id comes twice
        async with page(once) as server, scraping(server.address) as picture:
            await until(lambda: server.connections >= 8)
            assert failures(picture) == set() and states(picture)[0].running == 7
            assert picture.pool.lanes.usable(None) == [server.address]

    asyncio.run(run())


def test_every_endpoint_of_many_is_asked_once_a_round_and_one_that_hangs_once_at_a_time() -> None:
    async def run() -> None:
        async with page(hangs) as silent, contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(page(keeps(GOOD))) for _ in range(2 * TOGETHER + 1)]
            addresses = [silent.address, *(server.address for server in servers)]
            async with scraping(*addresses, every_s=0.1, timeout_s=5.0) as picture:
                await until(lambda: min(len(server.requests) for server in servers) >= 3)
                counts = [len(server.requests) for server in servers]
                assert max(counts) - min(counts) <= 1
                assert len(silent.requests) == 1
                assert [state.running for state in states(picture)] == [0, *[7] * len(servers)]

    asyncio.run(run())


def test_a_report_that_is_too_old_no_longer_counts() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as server:
            now = [100.0]
            async with scraping(server.address) as picture:
                picture.clock = lambda: now[0]
                await until(lambda: states(picture)[0].running == 7)
            now[0] += 0.6
            assert (picture.states()[0].running, picture.states()[0].waiting) == (0, 0)

    asyncio.run(run())


def test_a_call_that_ends_while_its_endpoint_is_asked_is_not_taken_for_somebody_elses() -> None:
    """Else its slot stays closed until the next report, half a second, which is as long as many a call."""

    async def run() -> None:
        ended = asyncio.Event()

        async def slow(writer: asyncio.StreamWriter) -> None:
            text = "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"  # two of ours and another one
            pool.end(ride, "ok")
            await says(text)(writer)
            ended.set()

        async with page(slow) as server:
            address = server.address
            async with scraping(address, every_s=0.05, timeout_s=1.0) as picture:
                pool = picture.pool
                ride, other = [await pool.pick(Call(name, "m", pool.clock()), None, 0.0) for name in "ab"]
                await until(lambda: picture.known[address].load is not None)
            assert ended.is_set() and picture.known[address].others == 1
            (state,) = states(picture)
            assert state.running == 2 and pool.lanes.cluster.on(address) == {other.call.id}
            picture.publish([address])  # an old report says no more of our calls than the book does
            pool.end(other, "ok")
            picture.publish([address])
            assert states(picture)[0].running == 1

    asyncio.run(run())


def test_refused_connections_take_an_endpoint_out_until_one_is_accepted() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as server:
            pass  # closed again: nobody listens
        async with scraping(server.address) as picture:
            await until(lambda: picture.pool.lanes.usable(None) == [])
            assert failures(picture) == {"refused"} and picture.counters.total("scrape_failures") >= 3
            async with page(says(GOOD), port=int(server.address.split(":")[1])):
                await until(lambda: picture.pool.lanes.usable(None) == [server.address])

    asyncio.run(run())


def test_a_name_that_is_not_known_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def run() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", nobody)
        async with scraping("llm-0.llm.svc:8000") as picture:
            await until(lambda: picture.pool.lanes.usable(None) == [])
            assert failures(picture) == {"refused"}

    asyncio.run(run())

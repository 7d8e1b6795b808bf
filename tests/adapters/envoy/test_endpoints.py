"""Where endpoints come from, and what their metrics pages do to the picture of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.endpoints import Endpoint, read_endpoints, watch_dns, watch_file
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.scrape import Picture, ScrapeRules
from swarmx.errors import BadInput
from swarmx.types import Call

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


def test_a_file_is_followed_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text("[{url: 'http://10.0.0.1:8000', slots: 4, device: l4}]")
    assert read_endpoints(path) == (Endpoint("10.0.0.1:8000", "l4", 4),)

    async def run() -> None:
        told: list[tuple[Endpoint, ...]] = []
        task = asyncio.create_task(watch_file(path, 0.02, told.append))
        await until(lambda: len(told) == 1)
        path.write_text("[{url: ")
        await asyncio.sleep(0.1)
        assert len(told) == 1
        path.write_text("[{url: 'http://10.0.0.2:8000'}]")
        await until(lambda: len(told) == 2)
        assert told[1][0].address == "10.0.0.2:8000"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{url: 'http://a:1'}, {url: 'http://a:1/'}]", "same address"),
        ("[{url: 'http://a:1/path'}]", "remove the path"),
        ("[{url: 'http://a:1', slotz: 3}]", "slotz"),
        ("{", "cannot be read"),
    ],
)
def test_a_bad_list_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_endpoints(path)


def test_every_address_of_a_name_is_an_endpoint_and_a_failed_look_up_keeps_them() -> None:
    answers: list[list[str] | OSError] = [["10.0.0.2:80", "10.0.0.1:80"], OSError("no such name"), ["[fd00::1]:80"]]

    async def resolve(host: str, port: int) -> list[str]:
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(said, OSError):
            raise said
        return said

    async def run() -> None:
        told: list[tuple[str, ...]] = []
        work = watch_dns("llm", 80, {"device": "l4"}, 0.01, lambda e: told.append(tuple(x.address for x in e)), resolve)
        task = asyncio.create_task(work)
        await until(lambda: len(told) == 2)
        assert told == [("10.0.0.1:80", "10.0.0.2:80"), ("[fd00::1]:80",)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@asynccontextmanager
async def page(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """A metrics endpoint that behaves as the handler says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                await handler(writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def says(text: str) -> Handler:
    async def handler(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode())
        await writer.drain()

    return handler


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


def _picture(addresses: list[str], **rules: float) -> Picture:
    loop = asyncio.get_running_loop()
    counters = Counters()
    pool = Pool(Lanes("push"), loop.time, PickLimits(), counters)
    options = {"every_s": 0.02, "timeout_s": 0.2, "stale_s": 0.5, "max_bytes": 2**20, **rules}
    picture = Picture(pool, ScrapeRules("m", **options), loop.time, counters)  # type: ignore[arg-type]
    picture.set_endpoints(tuple(Endpoint(a) for a in addresses))
    return picture


GOOD = (
    "vllm:num_requests_running 7\nvllm:num_requests_waiting 2\n"
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="9"} 1\n'
)


def test_a_report_reaches_the_scheduler_and_a_full_engine_tells_its_slots() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as address:
            picture = _picture([address])
            task = asyncio.create_task(picture.run())
            await until(lambda: picture.pool.lanes.cluster.states[0].waiting == 2)
            state = picture.pool.lanes.cluster.states[0]
            assert (state.running, state.slots, state.kv_capacity_tokens) == (7, 7, 144)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("handler", [hangs, drips, floods, says("vllm:num_requests_running NaN\n"), says("<html>")],
                         ids=["hangs", "drips", "10 MB", "lies", "no metrics"])  # fmt: skip
def test_a_bad_page_spoils_nothing_for_the_others(handler: Handler) -> None:
    async def run() -> None:
        async with page(handler) as bad, page(says(GOOD)) as good:
            picture = _picture([bad, good])
            task = asyncio.create_task(picture.run())
            await until(lambda: picture.counters.total("scrape_failures") >= 2)
            bad_state, good_state = picture.pool.lanes.cluster.states
            assert good_state.running == 7
            assert bad_state.running == 0 and not bad_state.breaker_open  # its calls may still be served
            assert set(picture.pool.lanes.usable(None)) == {bad, good}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_report_that_is_too_old_no_longer_counts() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as address:
            picture = _picture([address])
            now = [100.0]
            picture.clock = lambda: now[0]
            task = asyncio.create_task(picture.run())
            await until(lambda: picture.pool.lanes.cluster.states[0].running == 7)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
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

        async with page(slow) as address:
            picture = _picture([address], every_s=0.05, timeout_s=1.0)
            pool = picture.pool
            ride, other = [await pool.pick(Call(name, "m", pool.clock()), None, 0.0) for name in "ab"]
            task = asyncio.create_task(picture.run())
            await until(lambda: picture.known[address].load is not None)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert ended.is_set() and picture.known[address].others == 1
            (state,) = pool.lanes.cluster.states
            assert state.running == 2 and pool.lanes.cluster.on(address) == {other.call.id}
            picture.publish()  # an old report says no more of our calls than the book does
            pool.end(other, "ok")
            picture.publish()
            assert pool.lanes.cluster.states[0].running == 1

    asyncio.run(run())


def test_refused_connections_take_an_endpoint_out_until_one_is_accepted() -> None:
    async def run() -> None:
        async with page(says(GOOD)) as address:
            pass  # closed again: nobody listens
        picture = _picture([address])
        task = asyncio.create_task(picture.run())
        await until(lambda: picture.pool.lanes.usable(None) == [])
        async with page(says(GOOD), int(address.split(":")[1])):
            await until(lambda: picture.pool.lanes.usable(None) == [address])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())

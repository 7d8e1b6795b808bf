"""What endpoints' metrics pages, and whatever else answers there, do to the picture of them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket

import pytest
from patience import until
from scrape_rig import (
    GOOD,
    Handler,
    breaks_off,
    drips,
    failures,
    floods,
    hangs,
    hangs_up,
    keeps,
    page,
    raw,
    resets,
    says,
    scraping,
    speaks_in_tongues,
    states,
)

from swarmx.adapters.envoy.scrape import TOGETHER
from swarmx.types import Call


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
        rules = {"timeout_s": 0.2} if reason == "timeout" else {}
        async with page(handler) as b, page(says(GOOD)) as g, scraping(b.address, g.address, **rules) as picture:
            await until(lambda: picture.counters.total("scrape_failures") >= 4 and states(picture)[1].running == 7)
            bad_state, _ = states(picture)
            assert failures(picture) == {reason}
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
            async with scraping(*addresses, every_s=0.1) as picture:
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
            now[0] += 60.1
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
            async with scraping(address, every_s=0.05) as picture:
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

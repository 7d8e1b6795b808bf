"""Servers and clients that end their part in odd ways: nothing is counted twice, kept for ever or blamed on another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gateway_harness import Running, running
from patience import PATIENCE_S, until

from swarmx.adapters.gateway.scan import StreamScan, read_answer
from swarmx.adapters.gateway.ticket import Ticket
from swarmx.types import Call

pytestmark = pytest.mark.asyncio
STREAM = {"model": "mock", "messages": [{"role": "user", "content": "Tell me."}], "stream": True}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def replica(answer: Handler) -> AsyncIterator[str]:
    """Its address; it is healthy and answers calls as said."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": []})
        await request.read()
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def begun(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def at_rest(run: Running) -> tuple[int, int, int, int]:
    """(waiting calls, their bytes, calls on replicas, calls in schedulers' books); zeros where nothing is left over."""
    pool = run.gateway.state.pools["mock"]
    booked = sum(len(scheduler.cluster.flights) for scheduler in pool.arms.schedulers())
    return pool.waiting_calls, pool.waiting_bytes, sum(r.in_flight for r in pool.replicas.values()), booked


@pytest.mark.parametrize("goes_on", ["0", "1"])
async def test_a_server_that_keeps_its_connection_after_the_end_of_a_stream_has_served_it_once(goes_on: str) -> None:
    async def lingers(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(event("yes") + event("", "stop"))
        await response.write(b"data: [DONE]\n\n")
        await asyncio.Event().wait()
        return response

    async with replica(lingers) as url, running(0, urls=[url], server={"upstream": {"stall_s": 0.1}}) as run:
        headers = {"x-swarmx-continue-on-failure": goes_on}
        async with run.http.post(f"{run.url}/v1/chat/completions", json=STREAM, headers=headers) as stream:
            assert (await stream.read()).endswith(b"data: [DONE]\n\n")
        pool = run.gateway.state.pools["mock"]
        assert [row["status"] for row in run.gateway.state.latest()] == ["ok"]
        assert (pool.arrived, pool.over, at_rest(run)) == (1, 1, (0, 0, 0, 0))
        assert pool.replicas["r0"].failed_calls == 0


async def test_a_client_that_stops_reading_is_no_fault_of_the_server_s() -> None:
    async def floods(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        while True:
            await response.write(event("x" * 10_000))

    async with replica(floods) as url, running(0, urls=[url], server={"upstream": {"stall_s": 0.1}}) as run:
        clients = [await run.http.post(f"{run.url}/v1/chat/completions", json=STREAM) for _ in range(4)]
        await until(lambda: len(run.gateway.state.latest()) == 4)
        assert {row["status"] for row in run.gateway.state.latest()} == {"cancelled"}
        found = run.gateway.state.pools["mock"].replicas["r0"]
        assert (found.failed_calls, found.ejections, at_rest(run)) == (0, 0, (0, 0, 0, 0))
        for client in clients:
            with pytest.raises(aiohttp.ClientError):  # it must not take a part for the whole
                await client.read()


async def test_a_call_that_found_nobody_listening_still_ends_by_its_own_deadline() -> None:
    """What was lost with one server is not told of the next, which only had too little time."""

    async def thinks(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        upstream = {"attempts": 2, "budget_s": 0.5, "health_every_s": 1000.0}
        async with replica(thinks) as url:
            urls = [f"http://127.0.0.1:{nobody.getsockname()[1]}", url]
            async with running(0, urls=urls, preset="round_robin", server={"upstream": upstream}) as run:
                found = run.gateway.state.pools["mock"].replicas
                await until(lambda: found["r0"].failed_probes and found["r1"].probed)
                status, body, _ = await run.chat()
                assert (status, body["error"]["code"]) == (504, "budget_exhausted")
                assert run.gateway.state.latest()[0]["tried"] == ["r0", "r1"]
                assert found["r1"].failed_calls == 0


async def test_a_copy_for_which_the_queue_has_no_place_costs_the_first_nothing() -> None:
    answers = asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.json_response({"choices": []})

    server = {"limits": {"waiting_calls": 1}, "upstream": {"hedge": {"after_s": 0.1, "work_budget": 1.0}}}
    async with replica(waits) as one, replica(waits) as two:
        rows = [{"url": one, "slots": 1, "id": "r0"}, {"url": two, "slots": 1, "id": "r1"}]
        async with running(0, pool={"replicas": rows}, server=server) as run:
            calls = [asyncio.create_task(run.chat(f"call {i}")) for i in range(3)]  # two run, the third fills the queue
            await until(lambda: run.gateway.state.in_flight == 3)
            await asyncio.sleep(0.3)  # copies would be sent by now
            answers.set()
            assert [status for status, _, _ in await asyncio.gather(*calls)] == [200] * 3


async def test_an_answer_that_is_nested_without_end_or_counts_the_impossible_tells_no_usage() -> None:
    scan, count = StreamScan(True, keep_text=True), b'{"usage": {"completion_tokens": 1%s}}' % (b"0" * 400)
    for body in (b'{"usage": ' + b"[" * 100_000, count):
        assert read_answer(body).output is None
        assert scan.take(b"data: " + body + b"\n\n") == b"data: " + body + b"\n\n"
    assert scan.usage.output is None


async def test_a_server_that_counts_the_impossible_costs_no_call_and_no_place() -> None:
    bodies = [json.dumps({"choices": [], "usage": {name: 10**400}}) for name in ("prompt_tokens", "completion_tokens")]
    left = [*bodies, "[" * 100_000]

    async def lies(request: web.Request) -> web.StreamResponse:
        return web.Response(text=left.pop(), content_type="application/json")

    async with replica(lies) as url, running(0, urls=[url]) as run:
        while left:
            async with run.http.post(f"{run.url}/v1/chat/completions", json={**STREAM, "stream": False}) as answer:
                assert answer.status == 200
        assert at_rest(run) == (0, 0, 0, 0)


async def test_no_id_that_a_client_sends_is_taken_for_another_call_s() -> None:
    answers = asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.json_response({"choices": []})

    async with replica(waits) as url, running(0, urls=[url]) as run:
        pool, sent = run.gateway.state.pools["mock"], ["a~1", "a", "a", "a~1", "a", "a~1~1"]
        calls = [asyncio.create_task(run.chat(headers={"x-swarmx-call-id": name})) for name in sent]
        await until(lambda: len(pool.tickets) == len(sent))
        answers.set()
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200] * len(sent)
        assert at_rest(run) == (0, 0, 0, 0)
        assert (await run.chat(headers={"x-swarmx-call-id": "a"}))[0] == 200
        assert len({row["call_id"] for row in run.gateway.state.latest()}) == len(sent) + 1


async def test_an_id_that_was_forgotten_while_its_call_runs_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmx.adapters.gateway.app.MAX_SEEN_IDS", 2)
    answers = asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.json_response({"choices": []})

    async with replica(waits) as url, running(0, urls=[url]) as run:
        pool, calls = run.gateway.state.pools["mock"], []
        for i, name in enumerate(["a", "b", "c", "a", "d", "e", "a"]):
            calls.append(asyncio.create_task(run.chat(headers={"x-swarmx-call-id": name})))
            await until(lambda wanted=i + 1: pool.arrived == wanted)
        answers.set()
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200] * len(calls)
        assert at_rest(run) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "broken", [b"\xff\xfe\x00", b"- url: 2026-13-01\n", b"[" * 5000], ids=["bytes", "date", "deep"]
)
async def test_a_list_of_replicas_that_cannot_be_read_is_read_again_once_it_can(
    broken: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_bytes(broken)
    async with running(1) as other:
        pool = {"replicas": [], "discover": {"kind": "file", "path": str(path), "every_s": 0.05}}
        async with running(0, pool=pool) as run:
            await until(lambda: "keeps what it has" in caplog.text)
            path.write_text(f"- url: {other.mocks[0].url}")
            await until(lambda: run.gateway.state.pools["mock"].replicas)
            assert (await run.chat())[0] == 200


def reaping(urls: list[str], retries: int) -> dict[str, object]:
    """A pool whose scheduler takes calls without progress off their replicas."""
    admission = {"stall_s": 0.1, "retries": retries}
    rows = [{"url": url, "slots": 4, "id": f"r{i}"} for i, url in enumerate(urls)]
    return {"replicas": rows, "scheduler": {"preset": "late", "options": {"admission": admission}}}


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_call_that_is_sent_again_and_given_up_by_the_scheduler_hears_of_it(replicas: int) -> None:
    async def thinks(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    async with replica(thinks) as one, replica(thinks) as two:
        pool, server = reaping([one, two][:replicas], 1), {"upstream": {"eject_after": 1, "budget_s": PATIENCE_S}}
        async with running(0, pool=pool, server=server) as run:
            status, body, _ = await run.chat()
            assert (status, body["error"]["code"]) == (504, "given_up")
            found = run.gateway.state.pools["mock"]
            assert (at_rest(run), found.arrived, found.over) == ((0, 0, 0, 0), 1, 1)
            assert len(run.gateway.state.latest()[0]["tried"]) == 2
            assert [r.ejections for r in found.replicas.values()] == [0] * replicas  # the scheduler wanted it so


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_stream_that_has_begun_stays_whatever_the_scheduler_decides(retries: int) -> None:
    goes_on = asyncio.Event()

    async def pauses(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(event("yes"))
        await goes_on.wait()
        await response.write(event("", "stop") + b"data: [DONE]\n\n")
        return response

    async with replica(pauses) as url, running(0, pool=reaping([url], retries)) as run:
        found, stayed = run.gateway.state.pools["mock"], list[object]()
        stays = found._stays
        found._stays = lambda ticket, place: (stayed.append(place), stays(ticket, place))[1]  # type: ignore[method-assign]
        async with run.http.post(f"{run.url}/v1/chat/completions", json=STREAM) as stream:
            await until(lambda: stayed)
            goes_on.set()
            assert (await stream.read()).endswith(b"data: [DONE]\n\n")
        assert [row["status"] for row in run.gateway.state.latest()] == ["ok"]
        assert (at_rest(run), found.arrived, found.over) == ((0, 0, 0, 0), 1, 1)


async def test_an_attempt_that_ends_by_its_deadline_can_be_interrupted_as_well() -> None:
    """It would end the loop that ticks the pool."""
    ticket = Ticket(Call("a", "mock", 0.0), 0, "main", asyncio.get_running_loop().create_future())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0) as ticket.timeout:
            try:
                await asyncio.Event().wait()
            finally:
                ticket.interrupt("preempted")
    assert ticket.interrupted is None

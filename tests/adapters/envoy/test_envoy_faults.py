"""The picker behind a real Envoy when something is broken: endpoints, pickers, clients."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, ClientTimeout, web
from envoy_rig import Backend, free_port, held_port, needs_envoy, picker_seen, rig, running_envoy, serving, settings_for
from patience import PATIENCE_S, until

from swarmx.adapters.envoy.bootstrap import Bootstrap
from swarmx.adapters.envoy.picker import Picker

pytestmark = [pytest.mark.envoy, needs_envoy]
shown = pytest.mark.parametrize("answers", ["body", "watched"])


@shown
def test_the_proxy_walks_the_list_when_the_first_endpoint_is_dead(answers: str) -> None:
    async def run() -> None:
        alive, nobody = Backend("alive"), held_port()
        gone = f"127.0.0.1:{nobody.getsockname()[1]}"
        rows = [{"url": f"http://{gone}", "speed": 100.0}, {"url": f"http://{alive.address}"}]
        push = {"preset": "push"}
        async with rig([alive], {"answers": answers}, dead=(gone,), replicas=rows, scheduler=push) as r:
            reply = await r.post({"prompt": "x"})
            assert (reply.status, reply.backend) == (200, "alive")
            assert reply.json["destination"] == f"{gone},{alive.address}"
            await until(lambda: r.records)
            assert r.records[0].replica == alive.address  # as the proxy said, not as we had chosen
            assert r.picker.counters.total("fallbacks") == 1
        nobody.close()

    asyncio.run(run())


def test_failed_calls_in_a_row_take_an_endpoint_out_for_a_while() -> None:
    async def run() -> None:
        async with rig(scheduler={"preset": "round_robin"}) as r:
            bad = r.backends[0]
            for _ in range(5):
                r.picker.picture.note_call(bad.address, failed=True)
            replies = [await r.post({"prompt": "x"}) for _ in range(4)]
            assert {reply.backend for reply in replies} == {"b2"}
            r.picker.picture.known[bad.address].closed_until_s = 0.0
            r.picker.picture.publish([bad.address])
            assert {(await r.post({"prompt": "x"})).backend for _ in range(2)} == {"b1", "b2"}

    asyncio.run(run())


@pytest.mark.parametrize(("fail_open", "wanted"), [(True, 200), (False, 500)], ids=["FailOpen", "FailClose"])
@pytest.mark.parametrize("duplex", [True, False], ids=["duplex", "buffered"])
def test_a_dead_picker(fail_open: bool, wanted: int, duplex: bool) -> None:
    async def run() -> None:
        async with rig(proxy={"fail_open": fail_open, "duplex": duplex}) as r:
            assert (await r.post({"prompt": "x"})).status == 200
            await r.picker.server.drain(0)
            # a client that names a destination itself must not be followed now either
            sent = {"x-gateway-destination-endpoint": "127.0.0.1:1"}
            if duplex and fail_open:  # Envoy fails a few until it knows that there is no picker
                async with asyncio.timeout(PATIENCE_S):
                    while (await r.post({"prompt": "x"}, sent)).status != 200:
                        await asyncio.sleep(0.05)
            statuses = [(await r.post({"prompt": "x" * 1000}, sent)).status for _ in range(4)]
            assert all(status // 100 == wanted // 100 for status in statuses), statuses

    asyncio.run(run())


@shown
def test_a_client_that_leaves_while_its_call_is_held_frees_its_place(answers: str) -> None:
    async def run() -> None:
        async with rig([Backend("b1")], {"answers": answers}) as r:
            first = asyncio.create_task(r.post({"prompt": "x", "sleep": 0.6}))
            await until(lambda: r.backends[0].inside == 1)
            leaving = asyncio.create_task(r.post({"prompt": "x"}))
            await until(lambda: len(r.picker.lanes.owner.queue) == 1)
            leaving.cancel()
            await until(lambda: not r.picker.lanes.owner.queue)
            assert (await first).status == 200
            await until(lambda: not r.picker.pool.rides)
            assert r.picker.counters.total("closed_while_held") == 1
            assert sorted(record.status for record in r.records) == ["cancelled", "ok"]
            assert not r.picker.lanes.cluster.flights

    asyncio.run(run())


@shown
def test_a_client_that_leaves_in_the_middle_of_an_answer_is_cancelled_there(answers: str) -> None:
    async def run() -> None:
        async with rig([Backend("b1")], {"answers": answers}) as r:
            body = {"prompt": "x", "stream": True, "tokens": 100, "gap": 0.05}
            async with r.client.post(r.url + "/v1/completions", json=body) as got:
                await got.content.readany()
            await until(lambda: not r.picker.pool.rides)
            assert r.records[0].status == "cancelled"
            await until(lambda: r.backends[0].left == 1)

    asyncio.run(run())


@pytest.mark.parametrize("answers", ["body", "headers", "watched"])
def test_a_client_that_leaves_at_the_end_of_its_stream_was_served(answers: str) -> None:
    """Many clients close their connection on reading the last event, before the server has."""

    async def run() -> None:
        async with rig([Backend("b1")], {"answers": answers, "duplex": answers != "headers"}) as r:
            body = {"prompt": "x", "stream": True, "tokens": 5, "linger": 10}
            async with r.client.post(r.url + "/v1/completions", json=body) as got:
                async for line in got.content:
                    if line.startswith(b"data: [DONE]"):
                        got.close()
                        break
            await until(lambda: not r.picker.pool.rides)
            assert [record.status for record in r.records] == ["ok"]
            assert r.records[0].output_tokens == (0 if answers == "headers" else 5)
            assert not r.picker.lanes.cluster.flights
            await until(lambda: r.backends[0].left == 1)  # and the engine hears of it

    asyncio.run(run())


def test_a_watched_answer_outlives_the_picker() -> None:
    async def run() -> None:
        async with rig([Backend("b1")], {"answers": "watched"}) as r:
            body = {"prompt": "x", "stream": True, "tokens": 20, "gap": 0.05}
            async with r.client.post(r.url + "/v1/completions", json=body) as got:
                first = await got.content.readany()
                await r.picker.server.drain(0)
                whole = first + await got.content.read()
            assert whole.count(b'"choices":[{') == 20 and whole.endswith(b"data: [DONE]\n\n")

    asyncio.run(run())


def test_calls_that_nobody_watches_are_given_up_and_a_sentence_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The picker is told that answers are watched, the proxy has no second filter."""
    monkeypatch.setattr("swarmx.adapters.envoy.seen.FOLLOWS_S", 0.3)

    async def run() -> None:
        backend = Backend("b1")
        settings = settings_for((backend.address,), proxy={"answers": "watched"})
        async with rig([backend], {"answers": "none"}, Picker(settings)) as r:
            replies = await asyncio.gather(*(r.post({"prompt": "x"}) for _ in range(3)))
            assert [reply.status for reply in replies] == [200, 200, 200]
            await until(lambda: not r.picker.pool.rides)
            assert [record.status for record in r.records] == ["cancelled"] * 3
            assert not r.picker.lanes.cluster.flights

    asyncio.run(run())
    assert sum("no watching stream" in record.message for record in caplog.records) == 1


def test_a_client_cannot_have_its_answer_taken_for_anothers() -> None:
    """The header that tells a watching stream whose answer it sees is removed from what clients send."""

    async def run() -> None:
        async with rig([Backend("b1"), Backend("b2")], {"answers": "watched", "fail_open": True}) as r:
            slow = asyncio.create_task(r.post({"prompt": "x", "sleep": 0.5}, {"x-swarmx-call-id": "mine"}))
            await until(lambda: "mine" in r.picker.pool.rides)
            said = await r.post({"prompt": "x", "tokens": 9}, {"x-swarmx-decision": "mine"})
            assert said.status == 200 and said.headers["x-swarmx-decision"] != "mine"
            assert (await slow).headers["x-swarmx-decision"] == "mine"
            await until(lambda: not r.picker.pool.rides)
            assert {record.call_id == "mine": record.output_tokens for record in r.records} == {True: 3, False: 9}

    asyncio.run(run())


def test_a_slow_sender_and_a_slow_reader_hold_up_nobody() -> None:
    async def slow_body(rest: asyncio.Event) -> AsyncIterator[bytes]:
        for piece in (b'{"prompt": "', *(b"x" * 100 for _ in range(4))):
            yield piece
        await rest.wait()
        yield b'"}'

    async def run() -> None:
        rest = asyncio.Event()
        async with rig(scheduler={"preset": "push"}) as r:
            headers = {"content-type": "application/json"}
            slow = asyncio.create_task(_fetch(r.client, r.url, slow_body(rest), headers))
            stream = {"prompt": "x", "stream": True, "tokens": 20_000}
            async with r.client.post(r.url + "/v1/completions", json=stream) as unread:  # nobody reads this for a while
                assert [(await r.post({"prompt": "x"})).status for _ in range(10)] == [200] * 10
                rest.set()
                assert await slow == 200
                assert (await unread.read()).count(b'"choices":[{') == 20_000

    asyncio.run(run())


async def _hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def _floods(request: web.Request) -> web.StreamResponse:
    """10 MB, and packed they would be ten kilobytes."""
    return web.Response(text="# x\nvllm:num_requests_running 1\n" * 330_000)


async def _lies(request: web.Request) -> web.StreamResponse:
    return web.Response(text="vllm:num_requests_running -5\nvllm:num_requests_waiting 1e300\n")


async def _unpacks(request: web.Request) -> web.StreamResponse:
    packed = gzip.compress(b"#" * 10_000_000)
    return web.Response(body=packed, headers={"content-encoding": "gzip"})


async def _tells(request: web.Request) -> web.StreamResponse:
    return web.Response(text="vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n")


def test_metrics_pages_that_hang_lie_or_flood_delay_no_request() -> None:
    pages = {"hangs": _hangs, "floods": _floods, "lies": _lies, "unpacks": _unpacks, "tells": _tells}
    backends = [Backend(name, page=page) for name, page in pages.items()]
    scrape = {"every_s": 0.2, "timeout_s": 2.0, "stale_s": 4.0}

    async def run() -> None:
        async with rig(backends, scheduler={"preset": "round_robin"}, scrape=scrape) as r:
            known = r.picker.picture.known
            await until(lambda: known[backends[-1].address].load is not None)
            replies = [await r.post({"prompt": "x"}) for _ in range(40)]
            assert {reply.status for reply in replies} == {200}
            assert {reply.backend for reply in replies} == set(pages)  # what a page says takes nobody out
            assert sorted(reply.took_s for reply in replies)[20] < 2.0  # half of them waited for no page that hangs
            with_load = {b.name for b in backends if known[b.address].load is not None}
            assert with_load == {"tells"}
            said = [f'scrape_failures_total{{reason="{reason}"}}' for reason in ("timeout", "bad_page", "no_load")]
            await until(lambda: all(line in r.picker.counters.text() for line in said))
            async with r.client.get(f"http://127.0.0.1:{r.picker.pages_port}/healthz") as got:
                assert got.status == 200

    asyncio.run(run())


async def _fetch(client: ClientSession, url: str, body: Any, headers: dict[str, str]) -> int:
    async with client.post(url + "/v1/completions", data=body, headers=headers) as got:
        await got.read()
        return got.status


async def _picks(client: ClientSession, pages: int) -> float:
    async with client.get(f"http://127.0.0.1:{pages}/metrics") as got:
        lines = (await got.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("swarmx_picker_picks_total"))


PICKER = "import typer; from swarmx.commands.kubernetes import endpoint_picker; typer.run(endpoint_picker)"


@asynccontextmanager
async def separate_picker(config: Path, pages: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The picker as its own process, ready."""
    process = subprocess.Popen([sys.executable, "-c", PICKER, str(config), "--log-level", "warning"], cwd=config.parent)
    try:
        async with asyncio.timeout(180), ClientSession() as client:
            while True:
                assert process.poll() is None, "the picker has ended"
                with suppress(OSError):
                    async with client.get(f"http://127.0.0.1:{pages}/healthz") as got:
                        if got.status == 200:
                            break
                await asyncio.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize(
    ("how", "duplex"),
    [(signal.SIGTERM, True), (signal.SIGKILL, False)],  # in full duplex Envoy has no FailOpen for a sudden death
    ids=["drained", "killed"],
)
def test_a_picker_restarted_under_load_costs_no_call_but_those_in_its_hands(
    how: signal.Signals, duplex: bool, tmp_path: Path
) -> None:
    backends = [Backend("b1"), Backend("b2")]
    port, pages = free_port(), free_port()
    config = tmp_path / "picker.yaml"
    rows = [{"url": f"http://{b.address}", "slots": 4} for b in backends]
    said = {"model": "m", "replicas": rows, "listen": f"127.0.0.1:{port}", "metrics_listen": f"127.0.0.1:{pages}"}
    config.write_text(yaml.safe_dump({**said, "scrape": {"every_s": 0}, "notice_s": 3.0, "drain_s": 5.0}))
    options = Bootstrap(
        "127.0.0.1:0", (f"127.0.0.1:{port}",), tuple(b.address for b in backends),
        admin="127.0.0.1:0", duplex=duplex, message_timeout_s=1.0,
    )  # fmt: skip
    statuses: list[tuple[float, float, int]] = []

    async def caller(client: ClientSession, url: str, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began = loop.time()
            try:
                status = await _fetch(client, url, json.dumps({"sleep": 0.05}), {})
            except OSError:
                status = 0
            statuses.append((began, loop.time(), status))

    async def run() -> tuple[float, float]:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        http = ClientSession(timeout=ClientTimeout(20))
        async with serving(backends), http as client, running_envoy(options) as envoy:
            async with separate_picker(config, pages) as picker:
                await picker_seen(client, envoy.admin)
                callers = [asyncio.create_task(caller(client, envoy.url, stop)) for _ in range(8)]
                await asyncio.sleep(1.0)
                ended = loop.time()
                picker.send_signal(how)
                await asyncio.to_thread(picker.wait, 20)
            async with separate_picker(config, pages):
                async with asyncio.timeout(PATIENCE_S):
                    while (picks := await _picks(client, pages)) == 0:
                        await asyncio.sleep(0.1)
                stop.set()
                await asyncio.gather(*callers)
        return ended, picks

    ended, picks_after = asyncio.run(run())
    failed = [(began, end) for began, end, status in statuses if status != 200]
    assert len(statuses) > 50 and picks_after > 0  # the second picker was asked again
    if how == signal.SIGTERM:
        assert not failed
    else:
        assert len(failed) <= 8 and all(began <= ended <= end for began, end in failed)

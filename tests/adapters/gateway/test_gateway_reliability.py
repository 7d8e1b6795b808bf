"""Calls survive their replicas, as long as nothing of the answer has been streamed."""

from __future__ import annotations

import asyncio

import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gateway_harness import SPEC, Mock, running
from patience import PATIENCE_S, until

from swarmx.adapters.mock_replica import HiddenRule, MockOptions

pytestmark = pytest.mark.asyncio
USER = [{"role": "user", "content": "Tell me about apples."}]
LONG = MockOptions(rule=HiddenRule(mean_tokens=200, cv=0.01))


async def test_a_call_whose_replica_dies_is_answered_by_another_and_its_receipts_say_so() -> None:
    async with running(2, options=LONG) as run:
        calls = [asyncio.create_task(run.chat(f"call {i}")) for i in range(4)]
        await until(lambda: all(m.runner is not None for m in run.mocks) and run.gateway.state.in_flight == 4)
        await asyncio.sleep(0.1)
        await run.mocks[0].stop()
        answers = await asyncio.gather(*calls)
        assert [status for status, _, _ in answers] == [200] * 4
        again = [row for row in run.gateway.state.latest() if len(row["tried"]) > 1]
        assert again and all(row["tried"] == ["r0", "r1"] for row in again)
        receipts = run.gateway.state.receipts.of_call(again[0]["call_id"])
        assert [r.replica for r in receipts] == ["r0", "r1"] and "sent again after r0" in receipts[1].reason


async def test_a_dead_replica_is_left_alone_until_it_answers_again() -> None:
    async with running(2) as run:
        await run.mocks[0].stop()
        assert [(await run.chat(f"call {i}"))[0] for i in range(6)] == [200] * 6
        replica = run.gateway.state.pools["mock"].replicas["r0"]
        await until(lambda: not replica.healthy)
        await run.mocks[0].start()
        await until(lambda: replica.healthy)
        await asyncio.gather(*(run.chat(f"later {i}") for i in range(8)))
        assert any(row["replica"] == "r0" for row in run.gateway.state.latest()[:8])


async def test_calls_wait_while_no_replica_is_there_and_run_when_one_comes() -> None:
    async with running(1) as run:
        await run.mocks[0].stop()
        call = asyncio.create_task(run.chat())
        await asyncio.sleep(0.5)
        assert not call.done()
        await run.mocks[0].start()
        status, _, _ = await call
        assert status == 200


async def test_a_hung_replica_loses_its_calls_to_another() -> None:
    async with running(2) as run:
        await run.mocks[0].fault(run.http, kind="hang")
        answers = await asyncio.gather(*(run.chat(f"call {i}") for i in range(6)))
        assert [status for status, _, _ in answers] == [200] * 6
        assert not run.gateway.state.pools["mock"].replicas["r0"].healthy


async def test_a_500_is_tried_elsewhere_and_the_breaker_opens_after_a_few() -> None:
    async with running(2) as run:
        await run.mocks[0].fault(run.http, kind="error")
        for i in range(8):
            assert (await run.chat(f"call {i}"))[0] == 200
        assert run.gateway.state.pools["mock"].replicas["r0"].ejections >= 1


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_call_that_breaks_every_server_closes_none_to_the_others(replicas: int) -> None:
    async def picky(request: web.Request) -> web.Response:
        if request.method == "POST" and b"poison" in await request.read():
            return web.json_response({"error": {"message": "the engine failed"}}, status=500)
        message = {"role": "assistant", "content": "fine"}
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", picky)
    servers = [TestServer(app) for _ in range(replicas)]
    for server in servers:
        await server.start_server()
    try:
        # a breaker that opens stays open: the calls after it would wait until the test fails
        upstream = {"eject_s": 1000.0, "eject_most_s": 1000.0, "eject_after": 3}
        urls = [f"http://127.0.0.1:{server.port}" for server in servers]
        async with running(0, urls=urls, server={"upstream": upstream}) as run:
            for i in range(5):
                assert (await run.chat(f"poison {i}"))[0] == 500
                assert (await run.chat(f"call {i}"))[0] == 200
            if replicas > 1:  # one alone cannot tell what is to blame
                sent = [run.chat(f"{'poison' if i % 2 else 'call'} {i}") for i in range(40)]
                assert [status for status, _, _ in await asyncio.gather(*sent)] == [200, 500] * 20
            found = run.gateway.state.pools["mock"].replicas.values()
            assert {(r.usable(run.gateway.state.pools["mock"].clock.now()), r.ejections) for r in found} == {(True, 0)}
    finally:
        for server in servers:
            await server.close()


async def test_when_every_try_fails_the_servers_own_error_comes_back() -> None:
    async with running(2) as run:
        for mock in run.mocks:
            await mock.fault(run.http, kind="error")
        status, body, _ = await run.chat(timeout=None)
        assert status == 500 and body["error"]["message"] == "the engine failed"
        row = run.gateway.state.latest()[0]
        assert row["status"] == "error" and len(row["tried"]) == run.gateway.settings.server.upstream.attempts


async def test_a_full_replica_is_passed_over() -> None:
    async with running(2) as run:
        await run.mocks[0].fault(run.http, kind="refuse", times=2)
        assert [(await run.chat(f"call {i}"))[0] for i in range(4)] == [200] * 4


async def test_a_stream_cut_before_its_first_event_starts_over() -> None:
    async with running(2) as run:
        await run.mocks[0].fault(run.http, kind="cut", after_tokens=0, times=1)
        stream = await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream])
        assert text.split()[:2] == ["w0", "w1"]
        await until(lambda: not run.gateway.state.in_flight)
        assert run.gateway.state.latest()[0]["tried"] == ["r0", "r1"]


async def test_a_stream_cut_later_ends_with_a_clear_error() -> None:
    async with running(1, options=LONG) as run:
        await run.mocks[0].fault(run.http, kind="cut", after_tokens=50, times=1)
        stream = await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)
        with pytest.raises(openai.APIError, match="failed while it was answering"):
            async for _ in stream:
                pass
        await until(lambda: not run.gateway.state.in_flight)
        assert run.gateway.state.latest()[0]["status"] == "error"


@pytest.mark.parametrize("api", ["chat", "completion"])
async def test_a_stream_cut_later_goes_on_elsewhere_when_asked(api: str) -> None:
    async with running(2, options=LONG) as run:
        whole = (await run.chat("Tell me about apples."))[1]["usage"]["completion_tokens"]
        await run.mocks[0].fault(run.http, kind="cut", after_tokens=50, times=1)
        headers = {"x-swarmx-continue-on-failure": "1"}
        if api == "chat":
            chats = await run.openai.chat.completions.create(
                model="mock", messages=USER, stream=True, extra_headers=headers
            )
            chunks = [c async for c in chats]
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
        else:
            chunks = [
                c
                async for c in await run.openai.completions.create(
                    model="mock", prompt="user: Tell me about apples.", stream=True, extra_headers=headers
                )
            ]
            text = "".join(c.choices[0].text for c in chunks)
        assert text == "".join(f"w{i} " for i in range(whole))  # nothing missing, nothing twice
        assert len({c.id for c in chunks}) == 1
        await until(lambda: not run.gateway.state.in_flight)
        row = run.gateway.state.latest()[0]
        assert row["status"] == "ok" and row["tried"] == ["r0", "r1"]
        assert row["output_tokens"] == pytest.approx(whole, rel=0.15)  # the first part is counted by its text


async def test_a_deadline_ends_a_call_wherever_it_is() -> None:
    options = MockOptions(rule=HiddenRule(mean_tokens=5000, cv=0.01))
    async with running(1, spec=SPEC, options=options) as run:
        status, body, _ = await run.chat(headers={"x-swarmx-deadline-s": "0.3"})
        assert status == 504 and body["error"]["code"] == "budget_exhausted"
        stream = await run.openai.chat.completions.create(
            model="mock", messages=USER, stream=True, extra_headers={"x-swarmx-deadline-s": "0.3"}
        )
        with pytest.raises(openai.APIError, match="time budget"):
            async for _ in stream:
                pass
        await until(lambda: not run.gateway.state.in_flight)
        assert {row["status"] for row in run.gateway.state.latest()} == {"timeout"}


async def test_a_silent_stream_is_given_up() -> None:
    options = MockOptions(rule=HiddenRule(mean_tokens=5000, cv=0.01))
    async with running(1, options=options, server={"upstream": {"stall_s": 0.2, "unhealthy_after": 1000}}) as run:
        stream = await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)
        seen = aiter(stream)
        await anext(seen)
        await run.mocks[0].fault(run.http, kind="slow", factor=1e-6)
        with pytest.raises(openai.APIError, match="stall"):
            async for _ in seen:
                pass


async def test_shutdown_lets_accepted_calls_end_and_refuses_new_ones() -> None:
    async with running(1, options=LONG) as run:
        calls = [asyncio.create_task(run.chat(f"call {i}")) for i in range(6)]
        await until(lambda: run.gateway.state.in_flight == 6)
        stopping = asyncio.create_task(run.gateway.stop())
        await asyncio.sleep(0.05)
        late = await asyncio.gather(run.chat("too late"), return_exceptions=True)
        assert isinstance(late[0], OSError) or late[0][0] == 503
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200] * 6
        await stopping


async def test_a_drained_replica_ends_what_it_has_and_gets_nothing_new() -> None:
    async with running(2, options=LONG) as run:
        calls = [asyncio.create_task(run.chat(f"call {i}")) for i in range(4)]
        await until(lambda: run.gateway.state.in_flight == 4)
        replica = run.gateway.state.pools["mock"].replicas["r0"]
        had = replica.in_flight
        async with run.http.delete(f"{run.admin}/admin/pools/mock/replicas/r0", headers=run.admin_headers) as answer:
            assert answer.status == 200
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200] * 4
        assert had > 0 and sum(row["replica"] == "r0" for row in run.gateway.state.latest()) == had
        await until(lambda: "r0" not in run.gateway.state.pools["mock"].replicas)


async def test_a_replica_can_be_added_while_running() -> None:
    async with running(1) as run:
        other = Mock(run.mocks[0].spec, run.mocks[0].options)
        await other.start()
        try:
            async with run.http.post(
                f"{run.admin}/admin/pools/mock/replicas",
                json={"url": other.url, "id": "new", "slots": 4},
                headers=run.admin_headers,
            ) as answer:
                assert answer.status == 201
            await asyncio.gather(*(run.chat(f"call {i}") for i in range(8)))
            assert "new" in {row["replica"] for row in run.gateway.state.latest()}
        finally:
            await other.stop()


async def test_a_predictor_that_fails_or_hangs_costs_its_budget_and_no_call() -> None:
    import threading

    from swarmx.adapters.predicting import Forecaster

    class Broken:
        def __init__(self, hangs: bool) -> None:
            self.hangs, self.freed = hangs, threading.Event()

        def predict(self, calls: object) -> object:
            if self.hangs:
                self.freed.wait(PATIENCE_S)
            raise RuntimeError("no model")

    for hangs in (False, True):
        async with running(1) as run:
            state, broken = run.gateway.state, Broken(hangs)
            state.predictor = Forecaster(broken, 0.05, state.metrics.predictions)  # type: ignore[arg-type]
            assert [s for s, _, _ in await asyncio.gather(*(run.chat(f"call {i}") for i in range(4)))] == [200] * 4
            broken.freed.set()


async def test_a_prediction_decides_and_its_coverage_is_counted() -> None:
    from swarmx.adapters.predicting import Forecaster
    from swarmx.quantiles import QuantileGrid
    from swarmx.types import Prediction

    class Known:
        def predict(self, calls: list[object]) -> list[Prediction]:
            return [Prediction(QuantileGrid.point(10_000.0), model_version="v1") for _ in calls]

    async with running(1) as run:
        state = run.gateway.state
        state.predictor = Forecaster(Known(), 1.0, state.metrics.predictions)  # type: ignore[arg-type]
        _, _, headers = await run.chat()
        receipt = state.receipts.get(headers["x-swarmx-decision"])
        assert receipt is not None and receipt.tier == "neural" and receipt.model_version == "v1"
        assert (
            'swarmx_prediction_covered_total{level="0.99",pool="mock",source="neural"} 1.0'
            in state.metrics.text().decode()
        )


async def test_a_hedge_is_sent_for_a_silent_call_and_the_first_answer_counts() -> None:
    hedge = {"hedge": {"after_s": 0.15, "work_budget": 1.0}, "unhealthy_after": 1000}
    async with running(2, server={"upstream": hedge}) as run:
        await run.mocks[0].fault(run.http, kind="slow", factor=0.001)
        status, _, _ = await run.chat()
        assert status == 200
        await until(lambda: not run.gateway.state.in_flight)
        rows = {row["call_id"]: row["status"] for row in run.gateway.state.latest()}
        assert sorted(rows.values()) == ["cancelled", "ok"] and any(name.endswith("~copy") for name in rows)
        assert 'swarmx_hedges_total{pool="mock",won="copy"} 1.0' in run.gateway.state.metrics.text().decode()

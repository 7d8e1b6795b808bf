"""The gateway as OpenAI's own client sees it."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gateway_harness import running
from patience import until

from swarmx.adapters.mock_replica import HiddenRule, MockOptions

pytestmark = pytest.mark.asyncio
USER = [{"role": "user", "content": "Tell me about apples."}]


async def test_a_chat_comes_back_whole_with_usage() -> None:
    async with running() as run:
        answer = await run.openai.chat.completions.create(model="mock", messages=USER)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.choices[0].message.content == "".join(f"w{i} " for i in range(answer.usage.completion_tokens))


async def test_a_stream_comes_chunk_by_chunk_and_says_its_usage_only_when_asked() -> None:
    async with running() as run:
        plain = [c async for c in await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)]
        asked = [
            c
            async for c in await run.openai.chat.completions.create(
                model="mock", messages=USER, stream=True, stream_options={"include_usage": True}
            )
        ]
        assert len(plain) > 1 and all(c.choices and c.usage is None for c in plain)
        text = "".join(c.choices[0].delta.content or "" for c in plain)
        assert asked[-1].usage is not None and asked[-1].choices == []
        assert text.count(" ") == asked[-1].usage.completion_tokens
        await until(lambda: not run.gateway.state.in_flight)
        assert run.gateway.state.latest()[1]["output_tokens"] == asked[-1].usage.completion_tokens


async def test_the_first_chunk_does_not_wait_for_the_last() -> None:
    options = MockOptions(rule=HiddenRule(mean_tokens=300, cv=0.01))
    async with running(options=options) as run:
        loop = asyncio.get_running_loop()
        stream = await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)
        times = [loop.time() async for _ in stream]
        assert times[-1] - times[0] > 0.3  # 300 tokens of 2 ms, less what a busy machine may merge


async def test_tools_completions_embeddings_and_responses_pass_through() -> None:
    async with running() as run:
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
        chat = await run.openai.chat.completions.create(
            model="mock",
            messages=USER,
            tools=[tool],
            tool_choice="required",  # type: ignore[list-item]
        )
        assert chat.choices[0].message.tool_calls[0].function.name == "look_up"  # type: ignore[index, union-attr]
        text = await run.openai.completions.create(model="mock", prompt="Once", max_tokens=3)
        assert text.choices[0].finish_reason == "length" and text.choices[0].text == "w0 w1 w2 "
        vectors = await run.openai.embeddings.create(model="mock", input=["a", "b"], encoding_format="float")
        assert len(vectors.data) == 2 and vectors.data[0].embedding != vectors.data[1].embedding
        answer = await run.openai.responses.create(model="mock", input="Once upon a time")
        assert answer.output_text.startswith("w0 ") and answer.usage is not None
        events = [e async for e in await run.openai.responses.create(model="mock", input="Once", stream=True)]
        assert events[-1].type == "response.completed"
        assert [m.id async for m in run.openai.models.list()] == ["mock"]


async def test_errors_have_openais_shape() -> None:
    async with running() as run:
        with pytest.raises(openai.NotFoundError) as missing:
            await run.openai.chat.completions.create(model="other", messages=USER)
        assert missing.value.code == "model_not_found" and "mock" in missing.value.message
        with pytest.raises(openai.BadRequestError) as empty:
            await run.openai.chat.completions.create(model="mock", messages=[])
        assert empty.value.param == "messages"
        status, body, _ = await run.post("/v1/chat/completions", ["not", "an", "object"])
        assert status == 400 and body["error"]["code"] == "invalid_json"


async def test_a_full_queue_says_when_to_try_again() -> None:
    options = MockOptions(rule=HiddenRule(mean_tokens=200, cv=0.01))
    async with running(1, options=options, server={"limits": {"waiting_calls": 1}}) as run:
        answers = await asyncio.gather(*(run.chat(f"call {i}") for i in range(8)))
        refused = [(body, headers) for status, body, headers in answers if status == 429]
        assert refused and sum(status == 200 for status, _, _ in answers) == 8 - len(refused)
        assert all(body["error"]["code"] == "queue_full" and int(h["Retry-After"]) >= 1 for body, h in refused)


async def test_a_client_that_goes_cancels_its_call_at_the_replica() -> None:
    options = MockOptions(rule=HiddenRule(mean_tokens=4000, cv=0.01))
    async with running(1, options=options) as run:
        stream = await run.openai.chat.completions.create(model="mock", messages=USER, stream=True)
        await anext(aiter(stream))
        with pytest.raises(openai.APITimeoutError):
            await run.openai.chat.completions.create(model="mock", messages=USER, timeout=0.2)
        await stream.close()
        await until(lambda: not run.gateway.state.in_flight)
        assert {row["status"] for row in run.gateway.state.latest()} == {"cancelled"}
        async with run.http.get(f"{run.mocks[0].url}/metrics") as metrics:
            assert 'num_requests_running{engine="0",model_name="mock"} 0' in await metrics.text()


async def test_unknown_fields_reach_the_replica_as_they_were() -> None:
    from aiohttp import web

    seen = []

    async def echo(request: web.Request) -> web.Response:
        seen.append((await request.json(), request.headers.copy()))
        return web.json_response({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        async with running(0, urls=[url], pool={"engine_priority": True}) as run:
            extra = {"x_top": {"deep": [1, 2.5, None, "ü", 2**70]}, "temperature": 0.1}
            headers = {"Authorization": "Bearer client-secret", "x-request-id": "abc", "Cookie": "a=b", "x-odd": "1"}
            status, _, _ = await run.chat(body=extra, headers={**headers, "x-swarmx-priority": "low"})
            assert status == 200
            body, got = seen[0]
            assert {k: body[k] for k in extra} == extra
            assert body["priority"] >= 2 * 10**10  # vLLM serves smaller numbers first, and this is the last class
            assert got["x-request-id"] == "abc"
            assert not any(name in got for name in ("Authorization", "Cookie", "x-odd"))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("ending", ["waits", "breaks off"])
async def test_a_client_that_leaves_at_the_end_of_its_stream_was_served(ending: str) -> None:
    """Many clients close their connection on reading the last event, before the server has."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": []})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in ({"delta": {"content": "yes "}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}):
            await response.write(b"data: " + json.dumps({"choices": [event]}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        if ending == "waits":
            await asyncio.sleep(0.3)
        elif request.transport is not None:
            request.transport.abort()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    try:
        async with running(1, urls=[f"http://127.0.0.1:{server.port}"]) as run:
            body = {"model": "mock", "messages": USER, "stream": True}
            for _ in range(5):
                async with run.http.post(f"{run.url}/v1/chat/completions", json=body) as stream:
                    async for line in stream.content:
                        if line.startswith(b"data: [DONE]"):
                            stream.close()
                            break
            await until(lambda: len(run.gateway.state.latest()) == 5)
            assert {row["status"] for row in run.gateway.state.latest()} == {"ok"}
    finally:
        await server.close()

"""The router under Ray Serve LLM's own server and ingress; engine and protocol models are stand-ins (`llm_app`)."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.xdist_group("ray")]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> str:
    """The path that Ray's workers need."""
    monkeypatch.syspath_prepend(str(HERE / "llm_stub"))
    return f"{HERE}:{HERE / 'llm_stub'}"


def test_the_arguments_that_the_ingress_sends_say_prompt_and_workflow(stub: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.llm._internal.serve.core.protocol import RawRequestInfo
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest

    from swarmx.adapters.ray_serve.identity import read

    info = RawRequestInfo(headers={"X-SwarmX-Workflow-Id": "w", "x-swarmx-priority": "high", "cookie": "no"})
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    asked = read((ChatCompletionRequest(messages=messages, max_tokens=9), info), {})
    assert [m["content"] for m in asked.body.prompt] == ["Be brief.", "Hello"] and asked.body.max_tokens == 9
    assert asked.headers == {"x-swarmx-workflow-id": "w", "x-swarmx-priority": "high"}
    asked = read((CompletionRequest(prompt="Once"), None), {})
    assert asked.body.prompt == "Once" and asked.headers == {}


def test_chats_through_ingress_and_server_are_routed_counted_and_measured(
    ray_serve: Any, stub: str, app_name: str
) -> None:
    import llm_app

    from swarmx import client
    from swarmx.adapters.ray_serve.settings import router_config

    config = router_config("least_outstanding_per_speed", config={"start_s": 60.0})
    handle = ray_serve.run(llm_app.app(config, stub), name=app_name, route_prefix=None)

    async def chats() -> tuple[list[Any], list[Any], dict[str, Any]]:
        await handle.ask.remote("first")
        async with asyncio.timeout(60):
            while (await handle.seen.remote())["speeds"] != [0.25, 0.5, 1.0]:
                await asyncio.sleep(0.2)
        with client.workflow():
            said = client.headers(type="chat")
        whole = await asyncio.gather(*(handle.ask.remote("tell me", said) for _ in range(7)))
        streamed = await handle.ask.remote("stream it", said, True)
        async with asyncio.timeout(30):
            while (seen := await handle.seen.remote())["counts"].get("completed") != 9:
                await asyncio.sleep(0.2)
        return whole, streamed, seen

    whole, streamed, seen = asyncio.run(chats())
    replicas = Counter(answer[0]["choices"][0]["message"]["content"] for answer in whole)
    assert sorted(replicas.values()) == [1, 2, 4], "by speed and count, as LED does"
    events = [event for batch in streamed for event in batch]
    assert len(events) >= 1 and all(event.startswith("data: ") for event in events)
    assert seen["counts"]["routed"] == 9 and seen["counts"].get("fallbacks", 0) == 0
    assert seen["slots"] == [llm_app.SLOTS] * 3


def test_tokens_of_events_are_counted_or_taken_from_their_usage(stub: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from swarmx.adapters.ray_serve.llm import tokens_of_event

    assert tokens_of_event('data: {"choices": [{"delta": {"content": "x"}}]}\n\n') == (1, False)
    assert tokens_of_event('data: {"choices": [], "usage": {"completion_tokens": 12}}\n\n') == (12, True)
    assert tokens_of_event("data: [DONE]\n\n") == tokens_of_event(b"") == tokens_of_event("data: {") == (0, False)
    assert "sglang" in sys.modules

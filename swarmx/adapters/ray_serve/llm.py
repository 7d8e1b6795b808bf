"""Ray Serve LLM's server, with what the router and the scaler need to know of it. Needs `ray[llm]` (vLLM) or SGLang.

    LLMConfig(
        model_loading_config={"model_id": "llama", "model_source": ...},
        server_cls="swarmx.adapters.ray_serve.llm:SwarmXLLMServer",
        deployment_config={
            "max_ongoing_requests": 64,                       # the engine's max_num_seqs; Ray's default is a billion
            "request_router_config": router_config("late"),
            "autoscaling_config": swarmx_autoscaling(1, 8, slots=64),
        },
    )

The router works on Ray's own LLMServer too, as long as `max_ongoing_requests` is set; it then knows no replica's speed
and counts calls alone. Ray's server answers `chat` with a generator inside a coroutine: here the call lasts until that
generator has ended.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ray.llm._internal.serve.core.server.llm_server import LLMServer

from swarmx.adapters.ray_serve.replica import SwarmXReplica


class SwarmXLLMServer(SwarmXReplica, LLMServer):  # type: ignore[misc]
    """`LLMServer` whose chats, completions and embeddings are counted; slots are its `max_ongoing_requests`."""

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        async for chunk in self._swarmx_told(await super().chat(request, raw_request_info)):
            yield chunk

    async def completions(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        async for chunk in self._swarmx_told(await super().completions(request, raw_request_info)):
            yield chunk

    async def embeddings(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        async for chunk in await super().embeddings(request, raw_request_info):
            yield chunk

    async def record_routing_stats(self) -> dict[str, Any]:  # type: ignore[override]
        """The engine's own, for Ray's KV-aware router, and swarmx's."""
        return {**(await LLMServer.record_routing_stats(self)), **SwarmXReplica.record_routing_stats(self)}

    async def _swarmx_told(self, stream: Any) -> AsyncIterator[Any]:
        """The stream; its tokens are told as they come. A whole answer carries its usage, which is read elsewhere."""
        tokens = 0
        async for chunk in stream:
            found = [tokens_of_event(event) for event in (chunk if isinstance(chunk, list) else (chunk,))]
            if any(found):
                tokens = max([tokens + sum(n for n, is_total in found if not is_total), *(n for n, t in found if t)])
                self.swarmx_produced(tokens)
            yield chunk


def tokens_of_event(event: Any) -> tuple[int, bool]:
    """(tokens, whether that is the total) of one server-sent event; an event with text counts as one token."""
    if not isinstance(event, str) or not event.startswith("data: {"):
        return 0, False
    try:
        data = json.loads(event[6:])
    except ValueError:
        return 0, False
    usage = data.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
        return usage["completion_tokens"], True
    return len(data.get("choices") or ()), False

"""Ray Serve LLM with an emulated engine, for tests: Ray's own server, ingress code and builder around it.

Needs `llm_stub` on the path, which stands in for the protocol models of vLLM or SGLang.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ModelCard,
)
from ray.llm._internal.serve.core.engine.protocol import LLMEngine
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from starlette.requests import Request

from swarmx.adapters.mock_replica.replica import MockReplica
from swarmx.adapters.mock_replica.rule import HiddenRule
from swarmx.adapters.prompts import BLOCK_BYTES, prefix_blocks
from swarmx.adapters.ray_serve.counters import router_of
from swarmx.adapters.ray_serve.llm import SwarmXLLMServer
from swarmx.engine import EngineConstants
from swarmx.sim.cluster import ReplicaSpec

MODEL, SLOTS, SPEEDS = "emulated", 4, (1.0, 0.5, 0.25)
KV_TOKENS = 12_000  # of a replica: running calls, and the prompts' beginnings that it keeps
RULE = HiddenRule(mean_tokens=40.0, cv=1.0)
CONSTANTS = EngineConstants(0.01, 0.0005, 0.0, 0.0002)


class EmulatedLLM(LLMEngine):
    """Sleeps as an engine of its replica's speed would; knows a prompt's length by its characters."""

    def __init__(self, llm_config: Any) -> None:
        from ray import serve

        context = serve.get_replica_context()
        self.id, self.speed = context.replica_id.unique_id, SPEEDS[context.rank.rank % len(SPEEDS)]
        spec = ReplicaSpec(
            self.id, batched=True, slots=SLOTS, speed=self.speed, service=CONSTANTS, kv_capacity_tokens=KV_TOKENS,
            block_tokens=BLOCK_BYTES // 4,
        )  # fmt: skip
        self.replica = MockReplica(spec)

    async def start(self) -> None:
        pass

    def routing_stats(self) -> dict[str, Any]:
        return {"engine": "emulated"}

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        text = "".join(str(message["content"]) for message in request.messages)
        total, blocks = RULE.length(text), prefix_blocks(tuple(request.messages))
        async for _ in self.replica.generate(max(1, len(text) // 4), total, blocks, request.stream):
            if request.stream:
                yield f"data: {json.dumps({'choices': [{'delta': {'content': 'x'}}]})}\n\n"
        if not request.stream:
            yield ChatCompletionResponse(
                choices=[{"message": {"content": self.id}}], usage={"completion_tokens": total}
            )

    async def resolve_lora(self, lora_model: Any) -> None: ...
    async def completions(self, request: Any, raw_request_info: Any = None) -> None: ...
    async def embeddings(self, request: Any, raw_request_info: Any = None) -> None: ...
    async def transcriptions(self, request: Any, raw_request_info: Any = None) -> None: ...
    async def reset_prefix_cache(self) -> None: ...


class Server(SwarmXLLMServer):
    """The deployment of Ray Serve LLM but for GPUs."""

    swarmx_slots, swarmx_kv_capacity_tokens = SLOTS, KV_TOKENS
    _default_engine_cls = EmulatedLLM

    @classmethod
    def get_deployment_options(cls, llm_config: Any) -> dict[str, Any]:
        return copy.deepcopy(llm_config.deployment_config)  # without placement groups of accelerators

    async def start(self) -> None:
        await super().start()
        assert isinstance(self.engine, EmulatedLLM)
        self.swarmx_speed, self.swarmx_device = self.engine.speed, f"x{self.engine.speed:g}"


class Agent:
    """Asks as Ray's ingress does, with its own code, but for HTTP."""

    def __init__(self, llm: Any) -> None:
        card = ModelCard(id=MODEL, object="model", owned_by="", permission=[], metadata={})
        self.ingress = OpenAiIngress({MODEL: llm}, {MODEL: card})

    async def ask(self, text: str, headers: dict[str, str] | None = None, stream: bool = False) -> list[Any]:
        """All that came back."""
        body = ChatCompletionRequest(messages=[{"role": "user", "content": text}], model=MODEL, stream=stream)
        raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": raw, "query_string": b""})
        answer = self.ingress._get_response(body=body, call_method="chat", raw_request=request)
        return [c if isinstance(c, list | str) else c.model_dump() async for c in answer]

    async def seen(self) -> dict[str, Any]:
        """What this process's router has counted, and the speeds that it knows."""
        router = router_of(self.ingress._get_configured_serve_handle(MODEL))
        states = [] if router._desk is None else router._desk.lanes.cluster.states
        return {"counts": router.counts, "speeds": sorted(s.speed for s in states), "slots": [s.slots for s in states]}


def app(router: Any, path: str) -> Any:
    """The application. router : a `RequestRouterConfig`, or None for Serve's own; path : PYTHONPATH of its processes"""
    from ray import serve
    from ray.llm._internal.serve.core.server.builder import build_llm_deployment
    from ray.serve.llm import LLMConfig

    actor = {"num_cpus": 0.1, "runtime_env": {"env_vars": {"PYTHONPATH": path}}}
    options: dict[str, Any] = {"num_replicas": 3, "max_ongoing_requests": SLOTS, "ray_actor_options": actor}
    if router is not None:
        options["request_router_config"] = router
    config = LLMConfig(model_loading_config={"model_id": MODEL}, deployment_config=options)
    server = build_llm_deployment(config, deployment_cls=Server)
    return serve.deployment(Agent).options(max_ongoing_requests=1000, ray_actor_options=actor).bind(server)

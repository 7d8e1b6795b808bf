"""Deployments that the router's tests run inside Ray. Imported by Ray's workers, so nothing of pytest is here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ray import serve

from swarmx.adapters.ray_serve.replica import SwarmXReplica

SPEEDS = (1.0, 0.5, 0.25)


class Engine(SwarmXReplica):
    """Answers after seconds_per_word / speed for each word of the prompt; its speed follows from its rank."""

    swarmx_slots = 2

    def __init__(self, word_s: float = 0.02) -> None:
        context = serve.get_replica_context()
        self.id = context.replica_id.unique_id
        self.swarmx_speed = SPEEDS[context.rank.rank % len(SPEEDS)]
        self.word_s = word_s / self.swarmx_speed
        self.most = self.here = 0

    async def __call__(self, prompt: str, **swarmx: Any) -> dict[str, Any]:
        words = len(prompt.split())
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            await asyncio.sleep(words * self.word_s)
        finally:
            self.here -= 1
        return {"replica": self.id, "usage": {"completion_tokens": words}}

    async def stream(self, prompt: str) -> AsyncIterator[str]:
        for _ in prompt.split():
            await asyncio.sleep(self.word_s)
            yield self.id

    async def fail(self, prompt: str) -> None:
        raise KeyError(prompt)

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id: str) -> str:
        return f"model {model_id}"

    async def multiplexed(self, prompt: str) -> tuple[str, str]:
        return self.id, await self.load(serve.get_multiplexed_model_id())

    async def swarmx_seen(self) -> dict[str, Any]:
        return {**self.record_routing_stats(), "most": self.most, "id": self.id}


class Agent:
    """An ingress that calls the engine many times for one request."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def __call__(self, prompts: list[str]) -> list[str]:
        answers = await asyncio.gather(*(self.engine.remote(prompt) for prompt in prompts))
        return [answer["replica"] for answer in answers]

"""Emulated engines as a Serve deployment: sleeping by the simulator's engine model, for tests and benchmarks.

Each replica takes its speed from its rank in the deployment. The length of an answer follows from the prompt by a
hidden rule, as in `swarmx.adapters.mock_replica`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from swarmx.adapters.mock_replica.replica import MockReplica
from swarmx.adapters.mock_replica.rule import HiddenRule
from swarmx.adapters.ray_serve.replica import SwarmXReplica
from swarmx.engine import EngineConstants
from swarmx.sim.cluster import ReplicaSpec


class EmulatedEngine(SwarmXReplica):
    """speeds : by rank, repeated; slots : calls that run at once, others wait inside

    constants : (a, b, c, p) of `EngineConstants` at speed 1; rule : arguments of `HiddenRule`
    """

    def __init__(
        self, speeds: Sequence[float], slots: int, constants: Sequence[float], rule: dict[str, Any] | None = None
    ) -> None:
        from ray import serve

        context = serve.get_replica_context()
        self.id: str = context.replica_id.unique_id
        self.swarmx_slots = slots
        self.swarmx_speed = speeds[context.rank.rank % len(speeds)]
        self.swarmx_device = f"x{self.swarmx_speed:g}"
        self.rule = HiddenRule(**(rule or {}))
        service = EngineConstants(*constants)
        spec = ReplicaSpec(self.id, batched=True, slots=slots, speed=self.swarmx_speed, service=service)
        self.engine = MockReplica(spec)
        self.left_s: float | None = None

    async def __call__(self, prompt: str, **said: Any) -> dict[str, Any]:
        """The answer's length, and for how long the engine was empty before this call. said : `swarmx_*` of the call"""
        now, left_s = time.monotonic(), self.left_s
        idle_s = None if left_s is None or any(self.engine.load()[:2]) else now - left_s
        tokens = [so_far async for so_far, _ in self._generate(prompt, streamed=False)][-1]
        self.left_s = time.monotonic()
        usage = {"completion_tokens": tokens, "prompt_tokens": len(prompt) // 4}
        return {"replica": self.id, "usage": usage, "idle_s": idle_s}

    async def stream(self, prompt: str, **said: Any) -> AsyncIterator[int]:
        """Tokens so far, as they come."""
        async for tokens, _ in self._generate(prompt, streamed=True):
            self.swarmx_produced(tokens)
            yield tokens

    async def instant(self, prompt: str) -> str:
        """Answers at once."""
        return self.id

    def swarmx_load(self) -> dict[str, int]:
        try:
            running, waiting, kv = self.engine.load()
        except RuntimeError:  # asked from outside the event loop
            return {}
        return {"running": running, "waiting": waiting, "kv_tokens": kv}

    def _generate(self, prompt: str, streamed: bool) -> AsyncIterator[tuple[int, int]]:
        return self.engine.generate(max(1, len(prompt) // 4), self.rule.length(f"user: {prompt}"), (), streamed)

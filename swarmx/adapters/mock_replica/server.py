"""HTTP of the emulated engines: OpenAI's endpoints, vLLM's metrics and health, and a switch for faults."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from aiohttp import web

from swarmx.adapters.mock_replica.answers import Api, Asked, asked, chunk, embedding, tail, usage, whole, words
from swarmx.adapters.mock_replica.faults import Fault, parse_fault
from swarmx.adapters.mock_replica.replica import EngineLost, MockReplica
from swarmx.adapters.mock_replica.rule import HiddenRule
from swarmx.errors import BadInput
from swarmx.sim.cluster import ReplicaSpec

MAX_BODY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class MockOptions:
    """What all replicas of one process share.

    instant : answer at once, whatever the service model says; chunk_tokens : most tokens in one streamed event
    """

    model: str = "mock"
    rule: HiddenRule = field(default_factory=HiddenRule)
    instant: bool = False
    chunk_tokens: int = 16
    longest_tokens: int = 8192


class MockServer:
    """The request handlers of one emulated replica."""

    def __init__(self, spec: ReplicaSpec, options: MockOptions) -> None:
        self.replica = MockReplica(spec)
        self.options = options
        self.fault = Fault()
        self._hits = 0
        self._numbers = count()
        self._sick_until = 0.0

    # ---- faults ---------------------------------------------------------------------------------------------------

    def _hit(self, *kinds: str) -> bool:
        """Whether the present fault is of one of these kinds and hits this call."""
        if self.fault.kind not in kinds or (self.fault.times is not None and self._hits >= self.fault.times):
            return False
        self._hits += 1
        return True

    async def set_fault(self, request: web.Request) -> web.Response:
        try:
            self.fault = parse_fault(await request.json())
        except (BadInput, json.JSONDecodeError, TypeError) as problem:
            return _error(400, str(problem))
        self._hits = 0
        self.replica.set_speed(self.fault.factor if self.fault.kind == "slow" else 1.0)
        if self.fault.kind == "oom":
            self._sick_until = time.monotonic() + self.fault.seconds
            self.replica.die()
        return web.json_response({"fault": self.fault.kind})

    # ---- OpenAI's endpoints ---------------------------------------------------------------------------------------

    def generate(self, api: Api) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                body = json.loads(await request.read())
                ask = asked(api, body)
            except (ValueError, TypeError, KeyError, AttributeError):
                return _error(400, "the body is not a JSON object of that API")
            if (refusal := await self._refusal()) is not None:
                return refusal
            number = next(self._numbers)
            head = {
                "id": f"{api}-{self.replica.spec.id}-{number}",
                "created": int(time.time()),
                "model": body.get("model"),
            }
            total = self._length(ask)
            try:
                if ask.stream:
                    return await self._stream(request, ask, head, total)
                return await self._reply(ask, head, total)
            except EngineLost:
                return _error(500, "CUDA out of memory")

        return handle

    def _length(self, ask: Asked) -> int:
        wanted = min(self.options.rule.length(ask.text), self.options.longest_tokens)
        left = max(1, wanted - ask.held_tokens)
        return left if ask.max_tokens is None else max(1, min(left, ask.max_tokens))

    async def _refusal(self) -> web.Response | None:
        if time.monotonic() < self._sick_until or self._hit("error"):
            return _error(500, "CUDA out of memory" if self.fault.kind == "oom" else "the engine failed")
        if self._hit("refuse"):
            return _error(503, "the engine is full", {"Retry-After": "1"})
        if self._hit("hang"):
            await asyncio.Event().wait()
        return None

    async def _reply(self, ask: Asked, head: dict[str, Any], total: int) -> web.Response:
        cached = 0
        if not self.options.instant:
            answer = self.replica.generate(ask.prompt_tokens, total, ask.blocks, streamed=False)
            async for _, cached in answer:  # noqa: B007  the last one counts
                pass
        finish = "length" if total == ask.max_tokens else "stop"
        text = words(ask.held_tokens, ask.held_tokens + total)
        return web.json_response(
            whole(ask, head, text, finish, usage(ask.prompt_tokens, total, cached)),
            headers={"x-replica": self.replica.spec.id},
        )

    async def _stream(self, request: web.Request, ask: Asked, head: dict[str, Any], total: int) -> web.StreamResponse:
        cut_at = self.fault.after_tokens if self._hit("cut") else None
        stalls_at = self.fault.after_tokens if self._hit("stall") else None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-replica": self.replica.spec.id})
        finish = "length" if total == ask.max_tokens else "stop"
        told = cached = 0
        async for done, cached in self._tokens(ask, total):  # noqa: B007  the last one counts
            if cut_at is not None and done >= cut_at:
                _drop(request)
                return response
            if not response.prepared:
                await response.prepare(request)
            while told < done:
                upto = min(told + self.options.chunk_tokens, done)
                text = words(ask.held_tokens + told, ask.held_tokens + upto)
                await response.write(chunk(ask, head, text, finish if upto == total else None, told == 0))
                told = upto
                if stalls_at is not None and told >= stalls_at:
                    await asyncio.Event().wait()
        text = words(ask.held_tokens, ask.held_tokens + total)
        await response.write(tail(ask, head, text, finish, usage(ask.prompt_tokens, total, cached)))
        await response.write_eof()
        return response

    async def _tokens(self, ask: Asked, total: int) -> Any:
        if self.options.instant:
            yield total, 0
            return
        async for step in self.replica.generate(ask.prompt_tokens, total, ask.blocks):
            yield step

    async def embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (refusal := await self._refusal()) is not None:
            return refusal
        texts = body.get("input") if isinstance(body.get("input"), list) else [body.get("input")]
        data = [{"object": "embedding", "index": i, "embedding": embedding(str(t))} for i, t in enumerate(texts)]
        tokens = max(1, sum(len(str(t)) for t in texts) // 4)
        if not self.options.instant:
            async for _ in self.replica.generate(tokens, 1, streamed=False):
                pass
        used = {"prompt_tokens": tokens, "total_tokens": tokens}
        return web.json_response({"object": "list", "data": data, "model": body.get("model"), "usage": used})

    async def models(self, _: web.Request) -> web.Response:
        model = {"id": self.options.model, "object": "model", "created": 0, "owned_by": "vllm",
                 "max_model_len": self.replica.spec.longest_tokens}  # fmt: skip
        return web.json_response({"object": "list", "data": [model]})

    # ---- what routers look at -------------------------------------------------------------------------------------

    async def health(self, _: web.Request) -> web.Response:
        if self.fault.kind == "hang":
            await asyncio.Event().wait()
        sick = self.fault.kind == "sick" or time.monotonic() < self._sick_until
        return web.json_response({"status": "sick" if sick else "ok"}, status=503 if sick else 200)

    async def metrics(self, _: web.Request) -> web.Response:
        running, waiting, kv = self.replica.load()
        spec = self.replica.spec
        blocks = spec.kv_capacity_tokens // 16
        label = f'{{engine="0",model_name="{self.options.model}"}}'
        info = f'{{block_size="16",num_gpu_blocks="{blocks}"}}'
        rows = (
            ("num_requests_running", "gauge", label, running),
            ("num_requests_waiting", "gauge", label, waiting),
            ("kv_cache_usage_perc", "gauge", label, kv / spec.kv_capacity_tokens),
            ("cache_config_info", "gauge", info, 1),
            ("prompt_tokens_total", "counter", label, self.replica.prompt_tokens),
            ("prefix_cache_hits_total", "counter", label, self.replica.cached_tokens),
            ("generation_tokens_total", "counter", label, self.replica.output_tokens),
            ("request_success_total", "counter", label, self.replica.finished),
        )
        text = "".join(f"# TYPE vllm:{n} {kind}\nvllm:{n}{labels} {value}\n" for n, kind, labels, value in rows)
        return web.Response(text=text)


def mock_app(spec: ReplicaSpec, options: MockOptions) -> web.Application:
    """The server of one emulated replica."""
    server = MockServer(spec, options)
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", server.generate("chat"))
    app.router.add_post("/v1/completions", server.generate("completion"))
    app.router.add_post("/v1/responses", server.generate("response"))
    app.router.add_post("/v1/embeddings", server.embed)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/health", server.health)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_post("/mock/fault", server.set_fault)
    return app


async def serve_mocks(specs: Sequence[ReplicaSpec], options: MockOptions, host: str, port: int) -> list[web.AppRunner]:
    """Start one server per spec on consecutive ports; returns their runners, for `cleanup`."""
    runners = []
    for place, spec in enumerate(specs):
        app = mock_app(replace(spec, model=options.model, batched=True), options)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, host, port + place if port else 0, backlog=1024).start()
        runners.append(runner)
    return runners


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"error": {"message": message, "type": "server_error", "param": None, "code": None}}
    return web.json_response(body, status=status, headers=headers)


def _drop(request: web.Request) -> None:
    """Cut the connection without a proper end."""
    if request.transport is not None:
        request.transport.abort()

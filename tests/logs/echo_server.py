"""A small real server that streams, for the tests of the recorder."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from aiohttp import web


class Server:
    """An OpenAI-compatible server in a thread: it answers a prompt with the prompt's own words, one a token.

    The prompt `fail` gets a 500, `cut` a stream that breaks off, `error` an error event.
    """

    def __init__(self, token_s: float = 0.001, usage: bool = True, slots: int | None = 2) -> None:
        self.token_s = token_s
        self.usage = usage
        self.slots = slots
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.running = self.most = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "echo"}]})

    async def props(self, request: web.Request) -> web.Response:
        return web.json_response({"total_slots": self.slots}) if self.slots else web.Response(status=404)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.add(request.headers.get("Authorization"))
        prompt = body["messages"][-1]["content"]
        if prompt == "fail":
            return web.Response(status=500, text="out of memory")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._stream(request, prompt)
        finally:
            self.running -= 1

    async def _stream(self, request: web.Request, prompt: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)

        async def send(event: dict[str, Any]) -> None:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")

        await send({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        words = prompt.split()
        for word in words:
            await asyncio.sleep(self.token_s)
            await send({"choices": [{"delta": {"content": word + " "}}]})
            if prompt.startswith("cut") and request.transport is not None:
                request.transport.abort()
            if prompt.startswith("error"):
                await send({"error": {"message": "slot lost"}})
        if self.usage:
            details = {"cached_tokens": 3}
            counts = {
                "prompt_tokens": 10 + len(words),
                "completion_tokens": len(words),
                "prompt_tokens_details": details,
            }
            await send({"choices": [], "usage": counts})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _start(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/props", self.props),
                web.post("/v1/chat/completions", self.chat),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

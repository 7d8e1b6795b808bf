"""Pages as pickers and gateways publish them, on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The address of a page that the handler answers for."""
    app = web.Application()
    app.router.add_get("/state", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/state"
    finally:
        await runner.cleanup()


def page_of(*answers: Callable[[], web.Response]) -> AbstractAsyncContextManager[str]:
    """The address of a page that says one after the other, the last one for ever."""
    left = list(answers)

    async def handler(request: web.Request) -> web.Response:
        return left.pop(0)() if len(left) > 1 else left[0]()

    return serving(handler)

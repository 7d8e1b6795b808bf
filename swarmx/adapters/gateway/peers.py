"""Several gateways over the same pools: each pool is queued by one of them, the others forward to it.

Who owns a pool follows from rendezvous hashing over the gateways that answer, so that all agree without a store. While
they do not agree yet, both queue and each sees the other's calls in the replicas' own counts; nothing is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from swarmx.adapters.gateway.asked import Asked
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.identity import PREFIX, Identity
from swarmx.adapters.gateway.settings import PeerSettings
from swarmx.errors import BadInput

log = logging.getLogger(__name__)
SECRET_HEADER = "x-swarmx-peer"
PASSED_BACK = ("Content-Type", "Retry-After", "x-swarmx-decision")


class PeerLost(Exception):
    """The owner of a pool failed before anything of its answer was passed on."""


class Peers:
    """Knows who answers and who owns what, and forwards."""

    def __init__(self, settings: PeerSettings, clock: Clock, session: aiohttp.ClientSession) -> None:
        self.settings = settings
        self.clock = clock
        self.session = session
        self.secret = os.environ.get(settings.secret_env, "")
        if len(self.secret) < 16:
            raise BadInput(f"server.peers: environment variable {settings.secret_env} must hold 16 characters or more")
        self._seen = {url: float("-inf") for url in settings.others}

    def alive(self) -> list[str]:
        """Gateways that answer, this one included."""
        limit = self.clock.now() - self.settings.dead_after_s
        return [self.settings.me, *(url for url, seen in self._seen.items() if seen > limit)]

    def owner(self, pool: str) -> str:
        """The gateway that queues this pool's calls now."""
        return max(self.alive(), key=lambda url: hashlib.blake2b(f"{pool}\n{url}".encode(), digest_size=8).digest())

    def forget(self, url: str) -> None:
        """It has just failed: it counts as gone until it answers again."""
        self._seen[url] = float("-inf")

    def is_peer(self, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from another gateway."""
        said = headers.get(SECRET_HEADER)
        return said is not None and hmac.compare_digest(said.encode(), self.secret.encode())

    async def run(self) -> None:
        """Ask the others whether they are there; never returns."""
        while True:
            await asyncio.gather(*(self._ask(url) for url in self._seen))
            await asyncio.sleep(self.settings.every_s)

    async def _ask(self, url: str) -> None:
        timeout = aiohttp.ClientTimeout(total=self.settings.dead_after_s / 2)
        try:
            async with self.session.get(f"{url}/health", timeout=timeout) as answer:
                if answer.status == 200:
                    self._seen[url] = self.clock.now()
                else:
                    self.forget(url)
        except (aiohttp.ClientError, OSError):
            pass  # it counts as gone once it has been silent for dead_after_s

    # ---- forwarding -----------------------------------------------------------------------------------------------

    async def forward(
        self, owner: str, request: web.Request, raw: bytes, asked: Asked, identity: Identity, budget_s: float
    ) -> web.StreamResponse:
        """Have the owner answer. Raises PeerLost when it cannot and nothing was sent, Refused at the time limit."""
        headers = {"Content-Type": "application/json", SECRET_HEADER: self.secret, **identity_headers(identity)}
        response: web.StreamResponse | None = None
        try:
            async with (
                asyncio.timeout(budget_s),
                self.session.post(owner + asked.path, data=raw, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status == 503:
                    raise PeerLost("it is shutting down")
                shown = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
                if answer.content_type != "text/event-stream":
                    return web.Response(status=answer.status, body=await answer.read(), headers=shown)
                async for piece in answer.content.iter_any():
                    if response is None:
                        response = web.StreamResponse(headers=shown)
                        await response.prepare(request)
                    await response.write(piece)
        except TimeoutError:
            raise Refused(504, "the call used up its time budget", "budget_exhausted") from None
        except (aiohttp.ClientError, OSError) as problem:
            self.forget(owner)
            if response is None:
                raise PeerLost(str(problem)) from None
            await response.write(Refused(502, "the gateway that queued it failed", "stream_broken").event())
        if response is None:
            raise PeerLost("it answered nothing")
        await response.write_eof()
        return response


def identity_headers(identity: Identity) -> dict[str, str]:
    """What a call is, for the gateway that will queue it."""
    values = {
        "call-id": identity.call_id,
        "workflow-id": identity.workflow_id or None,
        "workflow-arrival": identity.workflow_arrival_s,
        "parent-id": identity.parent_id,
        "tenant": identity.tenant,
        "priority": identity.priority,
        "type": identity.type,
        "deadline-s": identity.deadline_s,
        "continue-on-failure": "1" if identity.continue_on_failure else None,
    }
    return {PREFIX + name: str(value) for name, value in values.items() if value is not None}

"""The public server: reads a request, checks it, queues it, and answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

import aiohttp
from aiohttp import web

from swarmx.adapters.gateway.access import Access, Tenant
from swarmx.adapters.gateway.asked import PATHS, Asked, read
from swarmx.adapters.gateway.errors import ClientGone, Refused
from swarmx.adapters.gateway.exchange import Exchange
from swarmx.adapters.gateway.hedge import Hedger
from swarmx.adapters.gateway.identity import Identity, identity_of
from swarmx.adapters.gateway.openapi import document
from swarmx.adapters.gateway.peers import PeerLost, Peers
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.state import GatewayState
from swarmx.adapters.prompts import prefix_blocks
from swarmx.predict.tools import with_tools
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)

TRACING = ("traceparent", "tracestate")
MAX_SEEN_IDS = 20_000  # ids that calls had; a repeated one is told apart


class Front:
    """Handlers of the public API."""

    def __init__(
        self, state: GatewayState, session: aiohttp.ClientSession, access: Access, peers: Peers | None = None
    ) -> None:
        self.state = state
        self.peers = peers
        hedge = state.server.upstream.hedge
        self.hedger = None if hedge is None else Hedger(hedge, state.metrics)
        self.session = session
        self.access = access
        self.forwarded = tuple(h.lower() for h in (*state.server.forward_headers, *TRACING))
        self._seen: OrderedDict[str, int] = OrderedDict()

    def routes(self) -> list[web.RouteDef]:
        calls = [web.post(path, self.call) for path in PATHS]
        gets = [("/v1/models", self.models), ("/health", self.health), ("/openapi.json", self.openapi)]
        return [*calls, *(web.get(path, handler) for path, handler in gets)]

    # ---- handlers -------------------------------------------------------------------------------------------------

    async def call(self, request: web.Request) -> web.StreamResponse:
        """One model call. Errors leave in OpenAI's shape."""
        try:
            return await self._call(request)
        except Refused as refusal:
            self.state.metrics.refused.labels(refusal.code or "other").inc()
            return refusal.response()
        except ClientGone:
            return web.Response(status=499)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        state = self.state
        if state.draining:
            raise Refused(503, "the gateway is shutting down", "draining", None, 5.0, {"Connection": "close"})
        from_peer = self.peers is not None and self.peers.is_peer(request.headers)
        tenant = None if from_peer else self.access.tenant(request.headers.get("Authorization"))
        raw = await self._body(request)
        asked = read(request.path, raw, state.server.media)
        pool = state.pool_of(asked.model)
        now = state.clock.now()
        identity = self._identity(request.headers, asked, tenant, now, from_peer)
        expected = round(asked.prompt_chars * pool.tokens_per_char) + (asked.max_tokens or 0)
        if tenant is not None:
            tenant.admit(expected, now)
        used = 0
        try:
            if self.peers is not None and not from_peer:
                response = await self._at_owner(request, raw, asked, pool, identity, now)
                if response is not None:
                    used = expected
                    return response
            response, used = await self._serve(request, pool, asked, identity, now)
            return response
        finally:
            if tenant is not None:
                tenant.leave(expected, used)

    async def _at_owner(
        self, request: web.Request, raw: bytes, asked: Asked, pool: Pool, identity: Identity, now: float
    ) -> web.StreamResponse | None:
        """The answer of the gateway that owns the pool; None when that is this one, in the end."""
        assert self.peers is not None
        while (owner := self.peers.owner(pool.name)) != self.peers.settings.me:
            try:
                budget_s = self._budget_s(identity, self.state.clock.now())
                return await self.peers.forward(owner, request, raw, asked, identity, budget_s)
            except PeerLost as lost:
                self.peers.forget(owner)
                log.warning("gateway %s is gone: %s", owner, lost)
        return None

    async def _serve(
        self, request: web.Request, pool: Pool, asked: Asked, identity: Identity, now: float
    ) -> tuple[web.StreamResponse, int]:
        """(the response, tokens that the call used)."""
        state = self.state
        call = self._make_call(pool, asked, identity, now)
        prediction = None
        if state.predictor is not None:
            prediction = await state.predictor(call, lambda p: pool.predicted(call.id, p))
        exchange = self._exchange(request, pool, asked, identity, call, prediction)
        if self.hedger is None:
            response = await exchange.run()
        else:
            response = await self.hedger.run(
                exchange, lambda: self._copy(request, pool, asked, identity, call, prediction)
            )
        ticket = exchange.ticket
        return response, (ticket.prompt_tokens or call.prompt_tokens) + ticket.output_tokens

    def _exchange(
        self,
        request: web.Request,
        pool: Pool,
        asked: Asked,
        identity: Identity,
        call: Call,
        prediction: Prediction | None,
    ) -> Exchange:
        """Queue the call. Raises Refused."""
        ticket = pool.submit(call, prediction, asked.size_bytes)
        ticket.traceparent = request.headers.get("traceparent")
        return Exchange(
            pool,
            ticket,
            asked,
            request,
            self.session,
            self._upstream_headers(request.headers),
            asyncio.get_running_loop().time() + self._budget_s(identity, call.arrival_s),
            identity.continue_on_failure,
        )

    def _copy(
        self,
        request: web.Request,
        pool: Pool,
        asked: Asked,
        identity: Identity,
        call: Call,
        prediction: Prediction | None,
    ) -> Exchange | None:
        """A second copy of a call, kept off the replica that has the first."""
        first = pool.tickets.get(call.id)
        if first is None or first.replica is None or len(pool.replicas) < 2:
            return None
        try:
            again = replace(call, id=self._unique(pool, f"{call.id}~copy"))
            copy = self._exchange(request, pool, asked, identity, again, prediction)
        except Refused:  # the queue is full, which is nothing to the first copy
            return None
        if copy.ticket.replica is first.replica:
            pool.put_back(copy.ticket, "hedge")  # not there again
        return copy

    async def models(self, request: web.Request) -> web.Response:
        """Models that clients can ask for."""
        try:
            self.access.tenant(request.headers.get("Authorization"))
        except Refused as refusal:
            return refusal.response()
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "swarmx"} for name in self.state.by_model]
        return web.json_response({"object": "list", "data": rows})

    async def openapi(self, _: web.Request) -> web.Response:
        """What this API accepts."""
        return web.json_response(document(sorted(self.state.by_model)))

    async def health(self, _: web.Request) -> web.Response:
        """200 while calls are accepted."""
        if self.state.draining:
            return web.json_response({"status": "draining"}, status=503)
        return web.json_response({"status": "ok"})

    # ---- parts ----------------------------------------------------------------------------------------------------

    async def _body(self, request: web.Request) -> bytes:
        """The whole body. Raises Refused when it is too long or too slow."""
        limits = self.state.server.limits
        if request.content_length is not None and request.content_length > limits.body_bytes:
            raise self._too_long()
        try:
            if request.content.is_eof():  # it came with the headers, as most do
                return await request.read()
            async with asyncio.timeout(limits.body_s):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise self._too_long() from None
        except TimeoutError:
            raise Refused(408, f"the body took longer than {limits.body_s:g} s", "body_timeout") from None

    def _too_long(self) -> Refused:
        limit = self.state.server.limits.body_bytes
        return Refused(413, f"the body is larger than {limit} bytes", "body_too_large", headers={"Connection": "close"})

    def _identity(
        self, headers: Mapping[str, str], asked: Asked, tenant: Tenant | None, now: float, from_peer: bool
    ) -> Identity:
        name = tenant.key.tenant if tenant is not None else None
        if name is None and not (self.state.server.trust_tenant_header or from_peer):
            name = "default"
        identity = identity_of(headers, asked.body, now, name)
        return identity if tenant is None else replace(identity, priority=tenant.clamp(identity.priority))

    def _make_call(self, pool: Pool, asked: Asked, identity: Identity, now: float) -> Call:
        prompt = with_tools(asked.prompt, asked.body.get("tools"))
        return Call(
            id=self._unique(pool, identity.call_id),
            model=pool.name,
            arrival_s=now,
            prompt=prompt,
            prompt_tokens=max(1, round(asked.prompt_chars * pool.tokens_per_char)),
            max_tokens=asked.max_tokens if asked.path != "/v1/embeddings" else 1,
            parent_id=identity.parent_id,
            workflow_id=identity.workflow_id,
            workflow_arrival_s=self.state.workflows.arrival_of(identity, now),
            tenant=identity.tenant,
            priority=identity.priority,
            type=identity.type or (None if asked.path != "/v1/embeddings" else "embedding"),
            deadline_s=identity.deadline_s,
            prefix_blocks=prefix_blocks(prompt) if pool.settings.prefix_cache else (),
            streamed=asked.stream,
        )

    def _unique(self, pool: Pool, call_id: str) -> str:
        """The id, with a number behind it when a client sends it again (its library retries, for example)."""
        name, numbers = call_id, self._seen.get(call_id, 0)
        while name in self._seen or name in pool.tickets:  # somebody may send such a number as part of an id
            numbers += 1
            name = f"{call_id}~{numbers}"
        self._seen.update({call_id: numbers, name: 0} if numbers else {name: 0})
        self._seen.move_to_end(call_id)
        while len(self._seen) > MAX_SEEN_IDS:
            self._seen.popitem(last=False)
        return name

    def _budget_s(self, identity: Identity, now: float) -> float:
        budget = self.state.server.upstream.budget_s
        return budget if identity.deadline_s is None else max(0.0, min(budget, identity.deadline_s - now))

    def _upstream_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What the replica gets: nothing of the client's but what is named, so no keys and no hop-by-hop headers."""
        kept = {name: headers[name] for name in self.forwarded if name in headers}
        return {"Content-Type": "application/json", **kept}

"""Choosing for others: people with a data plane of their own ask where a call should go, and report what became of it.

    POST /v1/select {"model": ..., "messages" | "prompt" | "prompt_tokens": ..., "max_tokens": ..., "wait_s": 30}
      -> {"reservation": id, "replica": {"id": ..., "url": ...}, "decision": receipt id}
    POST /v1/reservations/{id}/started | progress {"tokens": n} | refused | finished {"status": ..., "output_tokens": n}

A reservation that is not reported for `ttl_s` (default the stall limit) ends as a timeout and frees its place.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from aiohttp import web

from swarmx.adapters.gateway.access import Access, Tenant
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.identity import identity_of
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.state import GatewayState
from swarmx.adapters.gateway.ticket import Ticket
from swarmx.types import Call, Status

WAIT_S, MOST_WAIT_S = 30.0, 600.0


@dataclass(eq=False)
class Reservation:
    pool: Pool
    ticket: Ticket
    tenant: Tenant | None
    seen_s: float
    ttl_s: float


class Selection:
    """Handlers of the choose/reserve/report API."""

    def __init__(self, state: GatewayState, access: Access) -> None:
        self.state = state
        self.access = access
        self.open: dict[str, Reservation] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/select", self._answering(self.select)),
            web.post("/v1/reservations/{id}/{what:started|progress|refused|finished}", self._answering(self.report)),
        ]

    async def run(self) -> None:
        """End reservations that nobody reports any more; never returns."""
        while True:
            await asyncio.sleep(0.5)
            now = self.state.clock.now()
            for name, held in list(self.open.items()):
                if not held.ticket.waiting and now - held.seen_s > held.ttl_s:
                    self._close(name, held, "timeout")

    def _answering(self, handler: Any) -> Any:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                tenant = self.access.tenant(request.headers.get("Authorization"))
                body = json.loads(await request.read() or b"{}")
                if not isinstance(body, dict):
                    raise Refused(400, "the body must be a JSON object", "invalid_json")
                answer: web.StreamResponse = await handler(request, body, tenant)
                return answer
            except web.HTTPRequestEntityTooLarge:
                return Refused(413, "the body is too large", "body_too_large").response()
            except ValueError:
                return Refused(400, "the body is not valid JSON", "invalid_json").response()
            except Refused as refusal:
                return refusal.response()

        return guarded

    # ---- choose ---------------------------------------------------------------------------------------------------

    async def select(self, request: web.Request, body: dict[str, Any], tenant: Tenant | None) -> web.Response:
        """Queue a call and answer when it may start, within wait_s."""
        state = self.state
        if state.draining:
            raise Refused(503, "the gateway is shutting down", "draining", None, 5.0)
        pool = state.pool_of(str(body.get("model")))
        now = state.clock.now()
        call = self._call(request.headers, body, pool, tenant, now)
        ttl_s, wait_s = _number(body, "ttl_s", state.server.upstream.stall_s), _number(body, "wait_s", WAIT_S)
        if tenant is not None:
            tenant.admit(call.prompt_tokens, now)
        try:
            ticket = pool.submit(call, None, 0)
        except Refused:
            if tenant is not None:
                tenant.leave(call.prompt_tokens, 0)
            raise
        held = self.open[call.id] = Reservation(pool, ticket, tenant, now, ttl_s)
        return await self._choice(call.id, held, wait_s)

    async def _choice(self, name: str, held: Reservation, wait_s: float) -> web.Response:
        try:
            async with asyncio.timeout(min(wait_s, MOST_WAIT_S)):
                replica = await held.ticket.bound
        except TimeoutError:
            self._close(name, held, "timeout")
            raise Refused(429, "no replica came free in time", "no_capacity", None, 1.0) from None
        except Refused:
            self.open.pop(name, None)
            if held.tenant is not None:
                held.tenant.leave(held.ticket.call.prompt_tokens, 0)
            raise
        except asyncio.CancelledError:
            self._close(name, held, "cancelled")
            raise
        held.seen_s = self.state.clock.now()
        receipt = held.ticket.receipt
        chosen = {"id": replica.id, "url": replica.settings.url}
        decision = None if receipt is None else receipt.id
        return web.json_response({"reservation": name, "replica": chosen, "decision": decision})

    def _call(
        self, headers: Mapping[str, str], body: dict[str, Any], pool: Pool, tenant: Tenant | None, now: float
    ) -> Call:
        identity = identity_of(headers, body, now, None if tenant is None else tenant.key.tenant)
        prompt = body.get("messages") or body.get("prompt") or ""
        tokens = _number(body, "prompt_tokens", max(1.0, len(json.dumps(prompt)) * pool.tokens_per_char))
        limit = body.get("max_tokens")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise Refused(400, "max_tokens must be a whole number, not negative", "invalid_type", "max_tokens")
        name, number = identity.call_id, 1
        while name in self.open or name in pool.tickets:
            name, number = f"{identity.call_id}~{number}", number + 1
        return Call(
            id=name,
            model=pool.name,
            arrival_s=now,
            prompt=tuple(prompt) if isinstance(prompt, list) else str(prompt),
            prompt_tokens=round(tokens),
            max_tokens=limit,
            parent_id=identity.parent_id,
            workflow_id=identity.workflow_id,
            workflow_arrival_s=self.state.workflows.arrival_of(identity, now),
            tenant=identity.tenant,
            priority=identity.priority if tenant is None else tenant.clamp(identity.priority),
            type=identity.type,
            deadline_s=identity.deadline_s,
        )

    # ---- report ---------------------------------------------------------------------------------------------------

    async def report(self, request: web.Request, body: dict[str, Any], tenant: Tenant | None) -> web.Response:
        """What became of a reserved call."""
        name, what = request.match_info["id"], request.match_info["what"]
        held = self.open.get(name)
        if held is None or held.tenant is not tenant or held.ticket.waiting:
            raise Refused(404, f"no reservation {name[:100]!r} is open", "not_found")
        held.seen_s = self.state.clock.now()
        pool, ticket = held.pool, held.ticket
        if what == "started":
            pool.first_token(ticket)
        elif what == "progress":
            ticket.output_tokens = int(_number(body, "tokens", 0.0))
            pool.progress(ticket, ticket.output_tokens)
        elif what == "refused":
            wait_s = _number(body, "wait_s", WAIT_S)
            pool.put_back(ticket, "refused")
            return await self._choice(name, held, wait_s)
        else:
            status = body.get("status", "ok")
            if status not in get_args(Status):
                raise Refused(400, f"status must be one of {', '.join(get_args(Status))}", "invalid_value", "status")
            ticket.output_tokens = int(_number(body, "output_tokens", ticket.output_tokens))
            self._close(name, held, status)
        return web.json_response(
            {"reservation": name, "replica": None if ticket.replica is None else ticket.replica.id}
        )

    def _close(self, name: str, held: Reservation, status: Status) -> None:
        self.open.pop(name, None)
        if not held.ticket.over:
            held.pool.finish(held.ticket, status)
        if held.tenant is not None:
            held.tenant.leave(
                held.ticket.call.prompt_tokens, held.ticket.call.prompt_tokens + held.ticket.output_tokens
            )


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    """A number of the body that is not negative. Raises Refused (400)."""
    value = body.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise Refused(400, f"{name} must be a number, not negative", "invalid_type", name)
    return float(value)

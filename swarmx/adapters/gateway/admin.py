"""Administration on a port of its own: metrics, state, receipts, and replicas that come and go."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from swarmx.adapters.gateway.access import bearer, matches
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.peers import Peers
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.scaler_page import scaler_page
from swarmx.adapters.gateway.state import GatewayState
from swarmx.adapters.settings import ReplicaSettings
from swarmx.errors import BadInput

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LATEST = 50
PAGE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"


class Admin:
    """Handlers of the administration API; all but /health, the page's files and open metrics ask for the token.

    /state/POOL, which the external scaler reads, is as open as the metrics.
    """

    def __init__(self, state: GatewayState, peers: Peers | None = None) -> None:
        self.state, self.peers = state, peers

    def routes(self) -> list[web.RouteDef]:
        closed = self._closed
        is_open = self.state.server.admin.open_metrics
        metrics, pool = (h if is_open else closed(h) for h in (self.metrics, self.pool))
        return [
            web.get("/", self.page),
            web.get("/status.js", self.page),
            web.get("/status.css", self.page),
            web.get("/health", self.health),
            web.get("/metrics", metrics),
            web.get("/state/{pool:.+}", pool),
            web.get("/admin/state", closed(self.show)),
            web.get("/admin/receipts/{id:.+}", closed(self.receipt)),
            web.get("/admin/explain/{id}", closed(self.explain)),
            web.post("/admin/pools/{pool}/replicas", closed(self.add)),
            web.delete("/admin/pools/{pool}/replicas/{replica}", closed(self.remove)),
            web.post("/admin/pools/{pool}/replicas/{replica}/{what:drain|undrain}", closed(self.drain)),
        ]

    def _closed(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                if self.state.server.admin.token_sha256 is None:
                    why = "no server.admin.token_sha256 is configured; make one with swarmx serve --new-admin-token"
                    raise Refused(401, why, "invalid_token")
                if not matches(bearer(request.headers.get("Authorization")), self.state.server.admin.token_sha256):
                    raise Refused(401, "wrong or missing administration token", "invalid_token")
                return await handler(request)
            except Refused as refusal:
                return refusal.response()

        return guarded

    # ---- to look at -----------------------------------------------------------------------------------------------

    async def page(self, request: web.Request) -> web.Response:
        """The status page, which asks for the token and shows /admin/state."""
        name = request.path.strip("/") or "status.html"
        kind = {"html": "text/html", "js": "text/javascript", "css": "text/css"}[name.rsplit(".", 1)[1]]
        text = files("swarmx.adapters.gateway").joinpath("page", name).read_text(encoding="utf-8")
        headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
        return web.Response(text=text, content_type=kind, headers=headers)

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "draining" if self.state.draining else "ok"})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self.state.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def pool(self, request: web.Request) -> web.Response:
        """What a scaler needs of one pool; 404 for a pool that is not here."""
        pool = self.state.pools.get(request.match_info["pool"])
        if pool is None:
            return Refused(404, f"no such pool; there are {', '.join(self.state.pools)}", "not_found").response()
        owns = self.peers is None or self.peers.owner(pool.name) == self.peers.settings.me
        return web.json_response(scaler_page(pool, owns))

    async def show(self, _: web.Request) -> web.Response:
        state = self.state
        body = {
            "now_s": state.clock.now(),
            "draining": state.draining,
            "pools": {name: describe(pool) for name, pool in state.pools.items()},
            "latest": state.latest(),
            "receipts": [asdict(r) for r in state.receipts.latest(LATEST)],
        }
        return web.json_response(body)

    async def receipt(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        found = self.state.receipts.get(wanted)
        receipts = [found] if found is not None else self.state.receipts.of_call(wanted)
        if not receipts:
            raise Refused(404, f"no receipt or call {wanted[:100]!r} is kept", "not_found")
        return web.json_response({"receipts": [asdict(r) for r in receipts]})

    async def explain(self, request: web.Request) -> web.Response:
        """Why a call that waits now is held."""
        wanted = request.match_info["id"]
        for pool in self.state.pools.values():
            ticket = pool.tickets.get(wanted)
            if ticket is not None and ticket.waiting:
                receipt = pool.arms.scheduler(ticket.arm).explain(wanted, self.state.clock.now())
                if receipt is not None:
                    return web.json_response({"receipts": [asdict(receipt)]})
        raise Refused(404, f"no call {wanted[:100]!r} waits", "not_found")

    # ---- replicas -------------------------------------------------------------------------------------------------

    async def add(self, request: web.Request) -> web.Response:
        pool = self._pool(request)
        try:
            settings = ReplicaSettings.model_validate(json.loads(await request.read()))
            replica = pool.add_replica(settings, "admin")
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            raise Refused(400, f"{where}: {first['msg']}", "invalid_replica") from None
        except (ValueError, BadInput) as problem:
            raise Refused(400, str(problem)[:300], "invalid_replica") from None
        pool.sync()
        return web.json_response({"id": replica.id}, status=201)

    async def remove(self, request: web.Request) -> web.Response:
        """Let it run dry and take it out; `?now=1` sends its calls elsewhere at once."""
        pool, replica = self._pool(request), self._replica(request)
        pool.drain(replica, leave=True)
        if request.query.get("now") == "1":
            pool.replica_lost(replica, "removed")
        return web.json_response({"id": replica.id, "in_flight": replica.in_flight})

    async def drain(self, request: web.Request) -> web.Response:
        pool, replica = self._pool(request), self._replica(request)
        if request.match_info["what"] == "drain":
            pool.drain(replica, leave=False)
        else:
            pool.undrain(replica)
        return web.json_response({"id": replica.id, "in_flight": replica.in_flight})

    def _pool(self, request: web.Request) -> Pool:
        pool = self.state.pools.get(request.match_info["pool"])
        if pool is None:
            raise Refused(404, f"no such pool; there are {', '.join(self.state.pools)}", "not_found")
        return pool

    def _replica(self, request: web.Request) -> Any:
        pool = self._pool(request)
        replica = pool.replicas.get(request.match_info["replica"])
        if replica is None:
            raise Refused(404, f"no such replica; there are {', '.join(pool.replicas)}", "not_found")
        return replica


def describe(pool: Pool) -> dict[str, Any]:
    """What the status page shows of a pool."""
    now = pool.clock.now()
    replicas = [
        {
            "id": r.id,
            "device": r.settings.device,
            "healthy": r.healthy,
            "draining": r.draining,
            "breaker_open": r.open_until_s > now,
            "in_flight": r.in_flight,
            "slots": r.slots(pool.upstream, now),
            "running": r.observed.running,
            "waiting": r.observed.waiting,
            "others": r.observed.others,
            "kv_share": r.observed.kv_share,
            "learned_speed": next(pool.arms.schedulers()).fit.speed(r.id),
        }
        for r in pool.replicas.values()
    ]
    return {
        "policies": {arm: s.name for arm, s in pool.arms.acting.items()},
        "waiting": pool.waiting_calls,
        "in_flight": sum(r.in_flight for r in pool.replicas.values()),
        "expected_wait_s": pool.expected_wait_s() if pool.waiting_calls else 0.0,
        "trial": pool.arms.report(),
        "replicas": replicas,
    }

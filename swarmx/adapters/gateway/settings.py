"""What a user can set of the gateway's server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from swarmx.adapters.settings import Count, Positive, Settings
from swarmx.types import Priority

Port = Annotated[int, Field(ge=0, le=65535)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class KeySettings(Settings):
    """One API key, known by its SHA-256 alone (`swarmx serve --new-key TENANT` makes one).

    rate_per_s, tokens_per_minute, concurrency : limits of the tenant's key; None is no limit
    burst : calls that may come at once above the rate; priority_ceiling : best class that it may ask for
    """

    sha256: Sha256
    tenant: str
    rate_per_s: Positive | None = None
    burst: Count = 10
    concurrency: Count | None = None
    tokens_per_minute: Positive | None = None
    priority_ceiling: Priority = "high"


class AdminSettings(Settings):
    """Metrics, status page and administration, on a port of their own.

    token_sha256 : of the bearer token; without one everything but /metrics and /health is refused
    """

    host: str = "127.0.0.1"
    port: Port = 9090
    token_sha256: Sha256 | None = None
    open_metrics: bool = True


class TlsSettings(Settings):
    certificate: Path
    key: Path


class LimitSettings(Settings):
    """What one client, or all together, may use.

    headers_s : a connection that sent no complete request for so long is closed; body_s : time to send a body
    waiting_calls, waiting_bytes : the queue of one pool; beyond it calls are refused with 429
    """

    body_bytes: Count = 32 * 2**20
    header_bytes: Count = 16_384
    headers_s: Positive = 30.0
    body_s: Positive = 60.0
    connections: Count = 20_000
    waiting_calls: Count = 10_000
    waiting_bytes: Count = 512 * 2**20


class HedgeSettings(Settings):
    """Send a second copy of a call that has streamed nothing for `after_s`; the first to answer wins.

    work_budget : copies per call, over the last thousand calls
    """

    after_s: Positive
    work_budget: Annotated[float, Field(gt=0, le=1)] = 0.05


class UpstreamSettings(Settings):
    """How replicas are used.

    budget_s : longest life of a call, queueing included; a client's deadline shortens it
    stall_s : a call that has streamed and then nothing for so long is given up
    attempts : replicas that one call may be tried on; resume : most continuations of one broken stream
    health_every_s, health_timeout_s, unhealthy_after : probes and how many must fail in a row
    eject_after : failed calls in a row that open the breaker; eject_s, eject_most_s : for how long at first, at most
    slow_start_s : a new or recovered replica's slots grow to their number over this time
    """

    budget_s: Positive = 600.0
    stall_s: Positive = 120.0
    attempts: Count = 4
    resume: Annotated[int, Field(ge=0)] = 2
    connect_s: Positive = 2.0
    health_every_s: Positive = 1.0
    health_timeout_s: Positive = 1.0
    unhealthy_after: Count = 3
    eject_after: Count = 3
    eject_s: Positive = 1.0
    eject_most_s: Positive = 30.0
    slow_start_s: Annotated[float, Field(ge=0)] = 0.0
    hedge: HedgeSettings | None = None


class PeerSettings(Settings):
    """Gateways that share the pools: each pool is queued by one of them, the others forward to it.

    me : the url by which the others reach this one; others : theirs
    secret_env : environment variable with the secret that they share
    """

    me: str
    others: tuple[str, ...]
    secret_env: str
    every_s: Positive = 0.5
    dead_after_s: Positive = 2.0

    @field_validator("me", "others")
    @classmethod
    def _trim(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return value.rstrip("/") if isinstance(value, str) else tuple(v.rstrip("/") for v in value)


class TracingSettings(Settings):
    """OpenTelemetry spans. kind : "console" prints them, "otlp" sends them to `endpoint` over HTTP."""

    kind: Literal["console", "otlp"]
    endpoint: str | None = None


class ServerSettings(Settings):
    """The gateway's front.

    keys : empty serves anyone (only on a loopback address unless `open` is true)
    media : "data" refuses http(s) links to images, audio and files in requests, because the model server would fetch
        them from inside; "any" passes them on
    forward_headers : request headers that replicas get, besides those that carry tracing
    trust_tenant_header : without keys, take the tenant from x-swarmx-tenant
    drain_s : longest wait for running calls at shutdown; shadow_preset : what serves while `mode` is shadow
    """

    host: str = "127.0.0.1"
    port: Port = 8080
    open: bool = False
    admin: AdminSettings = AdminSettings()
    tls: TlsSettings | None = None
    keys: tuple[KeySettings, ...] = ()
    limits: LimitSettings = LimitSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    peers: PeerSettings | None = None
    tracing: TracingSettings | None = None
    media: Literal["data", "any"] = "data"
    forward_headers: tuple[str, ...] = ("x-request-id",)
    trust_tenant_header: bool = True
    drain_s: Annotated[float, Field(ge=0)] = 60.0
    shadow_preset: str = "least_outstanding"

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> ServerSettings:
        if not self.keys and not self.open and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(f"without keys, host {self.host} would serve anyone; set keys, or open: true to mean it")
        return self

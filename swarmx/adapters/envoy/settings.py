"""What a user can set of the endpoint picker: one YAML file, checked before anything starts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from swarmx.adapters.adaptation import AdaptationSettings
from swarmx.adapters.live_work import DemandSettings
from swarmx.adapters.settings import (
    Address,
    Count,
    DnsDiscovery,
    FileDiscovery,
    LogSettings,
    Mode,
    Positive,
    PredictorSettings,
    ReplicaSettings,
    SchedulerSettings,
    Settings,
    read_checked,
)
from swarmx.errors import BadInput
from swarmx.presets import PRESETS, preset

HOLD_SHARE = 0.8  # of Envoy's message_timeout that a buffered request may be held


class PoolDiscovery(Settings):
    """The InferencePool of that name and the pods that it selects. namespace : default the picker's own

    device_label, and the annotations `swarmx.io/slots`, `swarmx.io/speed`, `swarmx.io/context-tokens`,
    `swarmx.io/kv-capacity-tokens` of a pod say what its server is
    """

    kind: Literal["inference_pool"]
    name: str
    namespace: str | None = None
    device_label: str = "swarmx.io/device"


Source = Annotated[DnsDiscovery | FileDiscovery | PoolDiscovery, Field(discriminator="kind")]


class ScrapeSettings(Settings):
    """How often metrics pages are read; a report counts for stale_s; a page may be max_bytes long; every_s 0: never"""

    path: str = "/metrics"
    every_s: Annotated[float, Field(ge=0)] = 0.5
    timeout_s: Positive = 1.0
    stale_s: Positive = 3.0
    max_bytes: Count = 2 * 2**20


class LeaseSettings(Settings):
    """One picker of several owns the queue: the holder of this Lease. Times as in Kubernetes' own components.

    standby : "unready", as the endpoint picker protocol says, gets no traffic; "answer" is ready, binding at once
    label : set to "true" on the owner's pod, for a Service to select by; "" sets none. Needs POD_NAME in the
        environment
    """

    name: str
    namespace: str | None = None
    duration_s: Positive = 15.0
    renew_s: Positive = 5.0
    standby: Literal["unready", "answer"] = "unready"
    label: str = "swarmx.io/queue-owner"

    @model_validator(mode="after")
    def _renews_in_time(self) -> LeaseSettings:
        if self.renew_s * 2 > self.duration_s:
            raise ValueError(f"renew_s {self.renew_s:g} must be at most half of duration_s {self.duration_s:g}")
        return self


class ProxySettings(Settings):
    """What the picker must know of the proxy.

    message_timeout_s : as in Envoy's ext_proc filter (its default is 0.2). It runs while a buffered request is held,
        not in full duplex
    hold_s : longest time that a request is held in full duplex; buffered_hold_s : for buffered bodies, default 0.6 of
        message_timeout_s
    failure_mode : what the proxy does without a picker; for `--envoy`, in a cluster the InferencePool says it
    duplex, answers : how the proxy shows requests and answers, also for `--envoy`. "watched": a second filter shows
        answers, which wait for nothing; "body", "headers", "none": the filter that asks shows so much of them
    """

    message_timeout_s: Positive = 0.2
    hold_s: Annotated[float, Field(ge=0)] = 30.0
    buffered_hold_s: Annotated[float, Field(ge=0)] | None = None
    failure_mode: Literal["FailOpen", "FailClose"] = "FailOpen"
    listen: Address = "0.0.0.0:8080"
    admin: Address = "127.0.0.1:9901"
    pickers: Annotated[tuple[Address, ...], Field(min_length=1)] = ("127.0.0.1:9002",)
    duplex: bool = True
    answers: Literal["watched", "body", "headers", "none"] = "body"

    @property
    def buffered_s(self) -> float:
        return 0.6 * self.message_timeout_s if self.buffered_hold_s is None else self.buffered_hold_s

    @model_validator(mode="after")
    def _fits(self) -> ProxySettings:
        if self.buffered_s > HOLD_SHARE * self.message_timeout_s:
            raise ValueError(
                f"buffered_hold_s {self.buffered_s:g} leaves no time within Envoy's message_timeout of "
                f"{self.message_timeout_s:g} s; hold for at most {HOLD_SHARE * self.message_timeout_s:g} s, or raise "
                "message_timeout in Envoy and message_timeout_s here"
            )
        return self


class TlsSettings(Settings):
    """PEM files for the gRPC port. Some gateways speak TLS to endpoint pickers by default, without checking names."""

    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """(certificate chain, key) in PEM. Raises BadInput naming the files when they cannot be used."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
            return self.certificate.read_bytes(), self.key.read_bytes()
        except (OSError, ssl.SSLError) as problem:
            raise BadInput(f"tls: {self.certificate} and {self.key} cannot be used ({problem})") from None


class PickerPredictor(PredictorSettings):
    """As elsewhere, but in a process of its own unless told otherwise: a picker answers for the tail of latencies."""

    runs: Literal["thread", "process"] = "process"


class PickerSettings(Settings):
    """The whole file.

    model : served by the pool; replicas or discover : its endpoints; slots : calls that an endpoint runs at once, where
        neither it nor its metrics say
    mode : "on"; "shadow" decides and records, the proxy chooses; "canary:SHARE" does so for the rest
    listen : gRPC, with TLS where `tls` is given; metrics_listen : HTTP with /metrics, /healthz, /livez and /state
    max_body_bytes : longest request; max_bodies_bytes : of all together that are being read or held
    objectives : InferenceObjective -> priority, above those that an InferencePool's cluster names
    receipts : put `x-swarmx-decision` on answers
    demand : publish in /state what live workflows will still ask of every model, for the external scaler
    prefix_cache : the engines reuse the KV of equal beginnings of prompts
    notice_s : at shutdown, time between saying not ready and taking no more requests; drain_s : longest wait after that
        for the ends of the answers in hand
    """

    model: str
    replicas: tuple[ReplicaSettings, ...] = ()
    discover: Source | None = None
    slots: Count = 64
    mode: Mode = "on"
    listen: Address = "0.0.0.0:9002"
    metrics_listen: Address = "0.0.0.0:9090"
    tls: TlsSettings | None = None
    scheduler: SchedulerSettings = SchedulerSettings()
    predictor: PickerPredictor = PickerPredictor()
    log: LogSettings = LogSettings()
    proxy: ProxySettings = ProxySettings()
    scrape: ScrapeSettings = ScrapeSettings()
    lease: LeaseSettings | None = None
    objectives: dict[str, int] = Field(default_factory=dict)
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 1
    shed_waiting: Positive = 8.0
    max_body_bytes: Count = 32 * 2**20
    max_bodies_bytes: Count = 256 * 2**20
    receipts: bool = True
    prefix_cache: bool = True
    notice_s: Annotated[float, Field(ge=0)] = 3.0
    adaptation: AdaptationSettings = AdaptationSettings()
    drain_s: Annotated[float, Field(ge=0)] = 25.0
    demand: DemandSettings | None = None

    @property
    def share(self) -> float:
        """Of requests whose endpoint is really set."""
        if self.mode in ("on", "shadow"):
            return float(self.mode == "on")
        return float(self.mode.removeprefix("canary:"))

    @model_validator(mode="after")
    def _is_whole(self) -> PickerSettings:
        if bool(self.replicas) == (self.discover is not None):
            raise ValueError("give either replicas or discover, not both and not neither")
        if self.log.prompt == "embed" or self.adaptation.trainer == "process":
            raise ValueError("the picker neither embeds prompts nor starts trainers: keep them, run a trainer")
        if self.adaptation.kind != "none" and self.predictor.kind != "local":
            raise ValueError("adaptation needs a predictor of kind 'local' to adapt")
        if self.scheduler.preset not in PRESETS or PRESETS[self.scheduler.preset].needs == "oracle":
            known = ", ".join(name for name, p in PRESETS.items() if p.needs != "oracle")
            raise ValueError(f"scheduler.preset {self.scheduler.preset!r} is unknown here; choose one of {known}")
        try:
            preset(self.scheduler.preset, **self.scheduler.options)
        except BadInput as problem:
            raise ValueError(f"scheduler: {problem}") from None
        return self


def read_settings(path: Path) -> PickerSettings:
    """The checked file. Raises BadInput naming the key, its value and what would do."""
    return read_checked(path, PickerSettings)

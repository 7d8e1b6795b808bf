"""A complete Envoy configuration for those without Gateway API: one listener, the picker, one pool.

`swarmx endpoint-picker CONFIG --envoy` prints it; deploy/envoy/envoy.yaml is its output for a static pool. Choices that
matter:
- a destination header that a client sends is removed before anything else, else clients could choose where to connect
- the pool is an `override_host` cluster: the picker's list is walked by retries, and without a picker (FailOpen) the
  pool's own round robin goes on; an ORIGINAL_DST cluster takes one address and knows no fallback
- pickers are health-checked: only the owner of the queue is ready. In full duplex Envoy 1.40 fails a request whose
  picker dies or cannot be reached even under FailOpen, as parts of the body are on their way; once no picker is known
  to be healthy, requests go on. With buffered bodies FailOpen holds at any time
- answers are watched by a second filter in observability mode: they never wait for the picker, and go on when it dies.
  The first filter names the decision in a request header, so that the second knows whose answer it shows
- dynamic metadata in `envoy.lb` are dropped unless the namespace is named in `receiving_namespaces`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from swarmx.adapters.envoy.endpoints import endpoint_of
from swarmx.adapters.envoy.replies import DECISION, DESTINATION
from swarmx.adapters.envoy.settings import PickerSettings

_EXT = "type.googleapis.com/envoy.extensions"
_HTTP = f"{_EXT}.filters.http"
_HCM = f"{_EXT}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_MUTATION = f"{_EXT}.http.early_header_mutation.header_mutation.v3.HeaderMutation"
_POLICIES = f"{_EXT}.load_balancing_policies"
_PROTOCOLS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

Answers = Literal["watched", "body", "headers", "none"]
Balance = Literal["picker", "round_robin", "least_request"]


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """listen, admin, pickers : host:port; endpoints : host:port of every model server

    balance : "picker", or one of Envoy's own policies without a picker (to compare with)
    duplex : FULL_DUPLEX_STREAMED bodies, as Gateway API has them, else BUFFERED
    answers : what the picker sees of answers; "watched" and "body" give it tokens and usage, the latter with every
        chunk passing through the picker, as Gateway API has it
    receipts : put `x-swarmx-decision` on watched answers
    fail_open : requests go on to the pool when the picker does not answer
    """

    listen: str
    pickers: tuple[str, ...]
    endpoints: tuple[str, ...]
    admin: str = "127.0.0.1:9901"
    balance: Balance = "picker"
    cluster: Literal["override_host", "original_dst"] = "override_host"
    duplex: bool = True
    answers: Answers = "body"
    receipts: bool = True
    message_timeout_s: float = 0.2
    fail_open: bool = True
    retries: int = 2


def bootstrap(options: Bootstrap) -> dict[str, Any]:
    """The configuration as YAML or JSON take it."""
    filters = [_ext_proc(options)] if options.balance == "picker" else []
    if filters and options.answers == "watched":
        filters.append(_watching(options))
    filters.append({"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_HTTP}.router.v3.Router"}})
    clusters = [_pool(options)]
    if options.balance == "picker":
        clusters.append(_picker(options))
    return {
        "admin": {"address": _address(options.admin)},
        "static_resources": {"listeners": [_listener(options, filters)], "clusters": clusters},
    }


def bootstrap_text(settings: PickerSettings) -> str:
    """The configuration that fits a picker's settings, as YAML.

    Where the settings discover endpoints instead of listing them, the pool is an ORIGINAL_DST cluster: it goes where
    the picker says, and knows neither fallbacks nor FailOpen.
    """
    proxy = settings.proxy
    endpoints = tuple(endpoint_of(replica).address for replica in settings.replicas)
    options = Bootstrap(
        listen=proxy.listen,
        pickers=proxy.pickers,
        endpoints=endpoints,
        admin=proxy.admin,
        cluster="override_host" if endpoints else "original_dst",
        duplex=proxy.duplex,
        answers=proxy.answers,
        receipts=settings.receipts,
        message_timeout_s=proxy.message_timeout_s,
        fail_open=proxy.failure_mode == "FailOpen",
    )
    return yaml.safe_dump(bootstrap(options), sort_keys=False, width=110)


def _listener(options: Bootstrap, filters: list[dict[str, Any]]) -> dict[str, Any]:
    retry = {
        "retry_on": "connect-failure,refused-stream,reset-before-request",
        "num_retries": options.retries,
        "retry_host_predicate": [],
    }
    if options.balance != "picker" or options.cluster == "original_dst":
        retry.pop("retry_host_predicate")
    route: dict[str, Any] = {
        "match": {"prefix": "/"},
        "route": {"cluster": "pool", "timeout": "0s", "retry_policy": retry},
    }
    if options.balance == "picker" and options.answers == "watched" and options.receipts:
        route["response_headers_to_add"] = [{"header": {"key": DECISION, "value": f"%REQ({DECISION})%"}}]
    manager = {
        "@type": _HCM,
        "stat_prefix": "swarmx",
        "stream_idle_timeout": "0s",
        "early_header_mutation_extensions": [
            {
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": {"@type": _MUTATION, "mutations": [{"remove": DESTINATION}, {"remove": DECISION}]},
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "pool", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    room = {"per_connection_buffer_limit_bytes": 32 * 2**20}  # a buffered body must fit
    return {"name": "models", "address": _address(options.listen), **room, "filter_chains": [chain]}


def _ext_proc(options: Bootstrap) -> dict[str, Any]:
    """The filter that asks for an endpoint."""
    body = "FULL_DUPLEX_STREAMED" if options.duplex else "BUFFERED"
    answer = ("FULL_DUPLEX_STREAMED" if options.duplex else "STREAMED") if options.answers == "body" else "NONE"
    trailers, unseen = "SEND" if options.duplex else "SKIP", options.answers in ("none", "watched")
    return _filter(
        "envoy.filters.http.ext_proc",
        {
            "request_header_mode": "SEND",
            "response_header_mode": "SKIP" if unseen else "SEND",
            "request_body_mode": body,
            "response_body_mode": answer,
            "request_trailer_mode": trailers,
            "response_trailer_mode": trailers if options.answers == "body" else "SKIP",
        },
        failure_mode_allow=options.fail_open,
        message_timeout=f"{options.message_timeout_s:g}s",
        response_attributes=[] if unseen else ["upstream.address"],
        metadata_options={
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    )


def _watching(options: Bootstrap) -> dict[str, Any]:
    """The filter that shows answers to the picker and waits for nothing."""
    return _filter(
        "swarmx.watching",
        {
            "request_header_mode": "SEND",
            "response_header_mode": "SEND",
            "request_body_mode": "NONE",
            "response_body_mode": "STREAMED",
            "request_trailer_mode": "SKIP",
            "response_trailer_mode": "SKIP",
        },
        failure_mode_allow=True,
        observability_mode=True,
        deferred_close_timeout="0.5s",
        response_attributes=["upstream.address"],
    )


def _filter(name: str, modes: dict[str, str], **more: Any) -> dict[str, Any]:
    service = {"envoy_grpc": {"cluster_name": "picker", "authority": "picker"}}
    kind = f"{_HTTP}.ext_proc.v3.ExternalProcessor"
    return {
        "name": name,
        "typed_config": {"@type": kind, "grpc_service": service, "processing_mode": modes, **more},
    }


def _pool(options: Bootstrap) -> dict[str, Any]:
    if options.balance == "picker" and options.cluster == "original_dst":
        return {
            "name": "pool",
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "connect_timeout": "1s",
            "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION},
        }
    if options.balance == "picker":
        override = {
            "@type": f"{_POLICIES}.override_host.v3.OverrideHost",
            "override_host_sources": [
                {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}},
                {"header": DESTINATION},
            ],
            "fallback_policy": {"policies": [_policy("round_robin", "RoundRobin")]},
        }
        name = "envoy.load_balancing_policies.override_host"
        balance = {"typed_extension_config": {"name": name, "typed_config": override}}
    elif options.balance == "least_request":
        balance = _policy("least_request", "LeastRequest")
    else:
        balance = _policy("round_robin", "RoundRobin")
    return {
        "name": "pool",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_balancing_policy": {"policies": [balance]},
        "load_assignment": _assignment("pool", options.endpoints),
        "circuit_breakers": {"thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000,
                                             "max_requests": 100_000, "max_retries": 1_000}]},
    }  # fmt: skip


def _picker(options: Bootstrap) -> dict[str, Any]:
    http2 = {"http2_protocol_options": {"connection_keepalive": {"interval": "10s", "timeout": "3s"}}}
    return {
        "name": "picker",
        "type": "STRICT_DNS",
        "connect_timeout": "0.5s",
        "typed_extension_protocol_options": {
            _PROTOCOLS: {"@type": f"type.googleapis.com/{_PROTOCOLS}", "explicit_http_config": http2}
        },
        "load_assignment": _assignment("picker", options.pickers),
        "circuit_breakers": {"thresholds": [{"max_requests": 100_000, "max_pending_requests": 100_000}]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": "1s",  # a busy machine must not look like a dead picker
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 3,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "readiness"},
            }
        ],
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            "consecutive_gateway_failure": 100,
            "consecutive_5xx": 100,
            "base_ejection_time": "0.5s",
            "max_ejection_time": "2s",
            "interval": "0.5s",
            "max_ejection_percent": 100,
        },
    }


def _policy(name: str, message: str) -> dict[str, Any]:
    return {
        "typed_extension_config": {
            "name": f"envoy.load_balancing_policies.{name}",
            "typed_config": {"@type": f"{_POLICIES}.{name}.v3.{message}"},
        }
    }


def _assignment(name: str, endpoints: tuple[str, ...]) -> dict[str, Any]:
    hosts = [{"endpoint": {"address": _address(endpoint)}} for endpoint in endpoints]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]}


def _address(text: str) -> dict[str, Any]:
    host, _, port = text.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}

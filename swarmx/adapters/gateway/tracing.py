"""OpenTelemetry spans of finished calls, by the GenAI semantic conventions; nothing is loaded unless asked for."""

from __future__ import annotations

import re
from typing import Any

from swarmx.adapters.gateway.settings import TracingSettings
from swarmx.errors import BadInput
from swarmx.types import CallRecord

NS = 1e9
_traceparent = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class Tracing:
    """Makes one span per call, when the call is over: a parent for the whole, a child for the time on its replica."""

    def __init__(self, exporter: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.provider = TracerProvider(resource=Resource.create({"service.name": "swarmx-gateway"}))
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self.provider.get_tracer("swarmx.gateway")

    def add(self, record: CallRecord, traceparent: str | None) -> None:
        """Send the spans of a finished call."""
        from opentelemetry import trace

        assert record.finished_s is not None
        whole = self.tracer.start_span(
            f"chat {record.model}",
            context=_parent(traceparent),
            kind=trace.SpanKind.SERVER,
            start_time=int(record.arrival_s * NS),
            attributes=attributes_of(record),
        )
        if record.status not in ("ok", "cancelled"):
            whole.set_status(trace.StatusCode.ERROR, record.status)
        if record.dispatched_s is not None:
            run = self.tracer.start_span(
                "upstream",
                context=trace.set_span_in_context(whole),
                kind=trace.SpanKind.CLIENT,
                start_time=int(record.dispatched_s * NS),
                attributes={"server.address": record.replica or ""},
            )
            if record.first_token_s is not None:
                run.add_event("first token", timestamp=int(record.first_token_s * NS))
            run.end(int(record.finished_s * NS))
        whole.end(int(record.finished_s * NS))

    def close(self) -> None:
        self.provider.shutdown()


def attributes_of(record: CallRecord) -> dict[str, str | int | float]:
    """Attributes by the GenAI conventions, and swarmx's own under their own name."""
    values: dict[str, str | int | float | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": record.model,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "gen_ai.conversation.id": record.workflow_id or None,
        "swarmx.call.id": record.call_id,
        "swarmx.tenant": record.tenant,
        "swarmx.priority": record.priority,
        "swarmx.replica": record.replica,
        "swarmx.status": record.status,
        "swarmx.policy": record.policy,
        "swarmx.prediction.source": record.prediction_source,
    }
    return {name: value for name, value in values.items() if value is not None}


def tracing_of(settings: TracingSettings) -> Tracing:
    """Raises BadInput when the packages are not installed."""
    try:
        if settings.kind == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return Tracing(ConsoleSpanExporter())
        from importlib import import_module

        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise BadInput(
            "server.tracing needs OpenTelemetry; install it with: pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp-proto-http"
        ) from None
    return Tracing(otlp.OTLPSpanExporter(endpoint=settings.endpoint))


def _parent(traceparent: str | None) -> Any:
    """The context of a valid `traceparent`, else none."""
    from opentelemetry import trace

    match = _traceparent.match(traceparent) if traceparent else None
    if match is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(context)) if context.is_valid else None

"""OpenTelemetry spans out of files: OTLP/JSON as collectors export it, and flat {trace_id, spans} files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.logs.sources import json_objects
from swarmx.logs.values import seconds


@dataclass(frozen=True, slots=True)
class Span:
    """One span, whatever file it came from; times in Unix seconds.

    parent : span id, None for a root; failed : its status is an error
    attributes : those of its resource too, the span's own first
    """

    trace: str
    id: str
    parent: str | None
    name: str
    start_s: float
    end_s: float
    failed: bool
    attributes: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.trace}/{self.id}"


def read_spans(path: str | Path) -> list[Span]:
    """Every span of a file, in file order. Raises BadInput when it holds none, or naming a broken one."""
    spans = [_span(raw, resource, path) for raw, resource in _raw_spans(path)]
    if not spans:
        raise BadInput(f"{path}: no spans in it; OTLP/JSON (resourceSpans) or objects with a list 'spans' would do")
    return spans


def _raw_spans(path: str | Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each span as written, with its resource's attributes."""
    for row in json_objects(path):
        where = f"{path}: {row.place}"
        if "resourceSpans" not in row.values:
            trace = {"trace_id": row.values.get("trace_id")}
            for raw in _list(row.values, "spans", where):
                resource = raw.get("resource_attributes")
                yield {**trace, **raw}, resource if isinstance(resource, Mapping) else {}
            continue
        for group in _list(row.values, "resourceSpans", where):
            resource = group.get("resource")
            attributes = _attributes(resource.get("attributes") if isinstance(resource, Mapping) else None)
            for scope in _list(group, "scopeSpans", where):
                for raw in _list(scope, "spans", where):
                    yield raw, attributes


def _list(values: Mapping[str, Any], name: str, where: str) -> Sequence[Mapping[str, Any]]:
    entries = values.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in entries):
        raise BadInput(f"{where}: {name!r} must be a list of objects")
    return entries


def _span(raw: Mapping[str, Any], resource: Mapping[str, Any], path: str | Path) -> Span:
    trace, span_id = (_first(raw, *names) for names in (("trace_id", "traceId"), ("span_id", "spanId")))
    if not trace or not span_id:
        raise BadInput(f"{path}: a span without trace and span id ({str(dict(raw))[:80]})")
    times = []
    for name, nanos in (("start_time", "startTimeUnixNano"), ("end_time", "endTimeUnixNano")):
        try:
            times.append(seconds(raw[nanos], "ns") if nanos in raw else seconds(raw.get(name)))
        except ValueError as problem:
            value = raw.get(nanos, raw.get(name))
            raise BadInput(f"{path}: span {span_id!r}, field {name}: {str(value)[:80]!r} {problem}") from None
    status = raw.get("status")
    code = status.get("code") if isinstance(status, Mapping) else status
    return Span(
        trace=str(trace),
        id=str(span_id),
        parent=str(_first(raw, "parent_span_id", "parentSpanId") or "") or None,
        name=str(raw.get("name", "")),
        start_s=times[0],
        end_s=times[1],
        failed=str(code).upper() in ("2", "STATUS_CODE_ERROR", "ERROR"),
        attributes={**resource, **_attributes(raw.get("attributes"))},
    )


def _first(values: Mapping[str, Any], *names: str) -> Any:
    return next((values[n] for n in names if values.get(n) is not None), None)


def _attributes(raw: Any) -> dict[str, Any]:
    """Attributes as a plain mapping, from one or from OTLP's list of keys and typed values."""
    if isinstance(raw, Mapping):
        return dict(raw)
    pairs = raw if isinstance(raw, list) else []
    return {str(p.get("key")): _value(p.get("value")) for p in pairs if isinstance(p, Mapping)}


def _value(raw: Any) -> Any:
    if not isinstance(raw, Mapping) or not raw:
        return raw if not isinstance(raw, Mapping) else None
    kind, value = next(iter(raw.items()))
    if kind == "intValue":  # written as text, since JSON numbers lose digits
        return int(value) if str(value).lstrip("-").isdecimal() and len(str(value)) < 20 else value
    if kind == "arrayValue" and isinstance(value, Mapping):
        entries = value.get("values")
        return [_value(v) for v in entries] if isinstance(entries, list) else []
    if kind == "kvlistValue" and isinstance(value, Mapping):
        return _attributes(value.get("values"))
    return value

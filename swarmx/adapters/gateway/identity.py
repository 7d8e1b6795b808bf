"""Whose work a request is: workflow, parent call, tenant, priority, deadline, read from headers or the body.

In order: `x-swarmx-*` headers; the same names in the body's `metadata` (`swarmx_workflow_id`, ...); session headers
that coding agents send by themselves, and the body's `prompt_cache_key`; a W3C `traceparent`, whose trace is the
workflow. Without any, a call is its own workflow. Nothing here raises: what cannot be read counts as not there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from swarmx.types import PRIORITIES, Priority

PREFIX = "x-swarmx-"
SESSION_HEADERS = (
    "x-claude-code-session-id", "x-qwen-code-session-id", "x-opencode-session", "x-session-affinity", "session_id",
    "session-id", "thread-id", "x-session-id", "helicone-session-id",
)  # fmt: skip
FAR_FUTURE_S = 1e8  # a deadline below this counts from now, above it is a time since the epoch
_printable = re.compile(r"^[\x21-\x7e]{1,200}$")
_traceparent = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request says of itself; times in seconds since the epoch."""

    call_id: str
    workflow_id: str
    workflow_arrival_s: float | None
    parent_id: str | None
    tenant: str
    priority: Priority
    type: str | None
    deadline_s: float | None
    continue_on_failure: bool


def identity_of(headers: Mapping[str, str], body: Mapping[str, Any], now: float, tenant: str | None) -> Identity:
    """Read it. tenant : that of the API key, which no header overrides; None where there are no keys."""
    said = _Said(headers, body)
    trace, span = _trace(headers)
    arrival = _number(said.text("workflow-arrival"))
    deadline = _number(said.text("deadline-s"))
    priority = said.text("priority")
    return Identity(
        call_id=said.text("call-id") or f"call-{secrets.token_hex(16)}",
        workflow_id=said.text("workflow-id") or _session(headers, body) or trace or "",
        workflow_arrival_s=arrival if arrival is not None and 0 < arrival <= now + 60 else None,
        parent_id=said.text("parent-id") or span,
        tenant=tenant if tenant is not None else (said.text("tenant") or "default"),
        priority=priority if priority in PRIORITIES else "normal",
        type=said.text("type"),
        deadline_s=None if deadline is None or deadline <= 0 else deadline + (now if deadline < FAR_FUTURE_S else 0),
        continue_on_failure=said.text("continue-on-failure") in ("1", "true", "True"),
    )


class _Said:
    """One field at a time, from the headers or else from the body's metadata."""

    def __init__(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        self.headers = headers
        metadata = body.get("metadata")
        self.metadata = metadata if isinstance(metadata, dict) else {}

    def text(self, name: str) -> str | None:
        value = self.headers.get(PREFIX + name)
        if value is None and self.metadata:
            value = self.metadata.get("swarmx_" + name.replace("-", "_"))
        return _clean(value)


def _session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    for name in SESSION_HEADERS:
        if (value := _clean(headers.get(name))) is not None:
            return value
    return _clean(body.get("prompt_cache_key"))


def _trace(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(trace id, parent span id) of a valid `traceparent`."""
    value = headers.get("traceparent")
    match = _traceparent.match(value) if value else None
    if match is None or set(match.group(1)) == {"0"} or set(match.group(2)) == {"0"}:
        return None, None
    return match.group(1), match.group(2)


def _clean(value: object) -> str | None:
    """A short printable text without spaces, or nothing."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and _printable.match(value) else None


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None

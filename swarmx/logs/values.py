"""Foreign values as seconds, counts, statuses and prompt text. Each function raises ValueError saying what would do."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from swarmx.logs.fields import Field

# Seconds per unit; "iso" stands for ISO-8601 text.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TIME_UNITS = (*UNITS, "iso")

# What others call a status. HTTP codes that are not here are errors from 400 on and ok from 200 to 299.
STATUS_WORDS = {
    "ok": "ok",
    "success": "ok",
    "succeeded": "ok",
    "completed": "ok",
    "true": "ok",
    "error": "error",
    "failure": "error",
    "failed": "error",
    "false": "error",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "aborted": "cancelled",
    "preempted": "preempted",
    "timeout": "timeout",
    "timed_out": "timeout",
    "rejected": "rejected",
    "408": "timeout",
    "504": "timeout",
    "429": "rejected",
    "499": "cancelled",
}
CHARACTERS_PER_TOKEN = 4  # English text under common tokenizers; only for sources that count no tokens


def seconds(value: Any, unit: str | None = None) -> float:
    """A time or duration in seconds.

    unit : one of `TIME_UNITS`; None takes numbers as seconds and other text as ISO-8601
    ISO times without an offset are taken as UTC, digits beyond microseconds are cut.
    """
    if isinstance(value, datetime):
        return _epoch(value)
    if isinstance(value, str) and (unit == "iso" or (unit is None and not _is_number(value))):
        try:
            return _epoch(datetime.fromisoformat(value.strip()))
        except (ValueError, OverflowError):
            raise ValueError("is no ISO-8601 time; say its unit, as in --map arrival_s=column:ms") from None
    if isinstance(value, bool) or unit == "iso" or not isinstance(value, str | int | float):
        raise ValueError("is no time; numbers and ISO-8601 text are")
    if not _is_number(value):
        raise ValueError(f"is no number of {unit or 's'}")
    return float(value) * UNITS[unit or "s"]


def count(value: Any) -> int:
    """A whole number, also from text or a float such as 12.0."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, bool) and _is_number(value) and math.isfinite(float(value)):
        number = float(value)
        if number.is_integer():
            return int(number)
    raise ValueError("is no whole number")


def status(value: Any) -> str:
    """One of swarmx's statuses from another's word or an HTTP code."""
    word = str(value).strip().lower()
    if word in STATUS_WORDS:
        return STATUS_WORDS[word]
    if word.isdecimal() and len(word) == 3 and "200" <= word <= "599":
        return "ok" if word < "300" else "error"
    raise ValueError(f"is no known status; known are {', '.join(STATUS_WORDS)} and HTTP codes")


def prompt_text(value: Any) -> str:
    """The text of a prompt: itself, or that of chat messages, one "role: text" line per message.

    A lone user message is given without its role.
    """
    if isinstance(value, str):
        return value
    messages = value if isinstance(value, Sequence) else [value]
    parts = [
        (str(m.get("role", "user")), _content(m)) if isinstance(m, Mapping) else ("user", str(m)) for m in messages
    ]
    if len(parts) == 1 and parts[0][0] == "user":
        return parts[0][1]
    return "\n".join(f"{role}: {text}" for role, text in parts)


def estimated_tokens(text: str) -> int:
    """A rough count for sources that count none: one token per `CHARACTERS_PER_TOKEN` characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def convert(field: Field, value: Any, unit: str | None = None) -> Any:
    """A foreign value as the field's type. None stays None."""
    if value is None:
        return None
    if field.name == "status":
        return status(value)
    if field.name == "prompt":
        return prompt_text(value)
    if field.kind == "number":
        return seconds(value, unit)
    if field.kind == "count":
        return count(value)
    if field.kind == "bytes":
        return value if isinstance(value, bytes) else _base64(value)
    if field.kind in ("texts", "numbers"):
        items = _items(value)
        return tuple(str(i) for i in items) if field.kind == "texts" else tuple(_number(i) for i in items)
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def _epoch(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _number(value: Any) -> float:
    if isinstance(value, bool) or not _is_number(value):
        raise ValueError(f"holds {str(value)[:20]!r}, which is no number")
    return float(value)


def _content(message: Mapping[str, Any]) -> str:
    """Text of one message: plain, or the text parts of OpenAI's and OpenTelemetry's lists of parts."""
    content = message.get("content", message.get("parts", ""))
    if isinstance(content, str) or content is None:
        return content or ""
    parts = content if isinstance(content, Sequence) else [content]
    texts = [p.get("text", p.get("content", "")) if isinstance(p, Mapping) else p for p in parts]
    return "\n".join(str(t) for t in texts if t)


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else [v for v in value.split(";") if v]
        except RecursionError:
            raise ValueError("is nested too deeply") from None
    if not isinstance(value, list | tuple):
        raise ValueError("is no list; write a JSON list or separate the items by ;")
    return value


def _base64(value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is no base64") from None

"""Server-sent events cut out of a byte stream, whatever the pieces that it comes in."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_EVENT_BYTES = 16 * 2**20
_end = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class EventTooLong(ValueError):
    """One event is longer than any model server sends; the stream is not to be trusted."""


class EventSplitter:
    """Collects pieces and gives back whole events, each with its closing blank line, byte for byte."""

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._held = bytearray()
        self._seen = 0  # no event ends before this offset

    def feed(self, piece: bytes) -> list[bytes]:
        """Whole events that this piece completes. Raises EventTooLong."""
        if not self._held and piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 and b"\r" not in piece:
            return [piece]  # by far the most frequent case: one event in one piece
        self._held += piece
        events = []
        begin = 0
        while (match := _end.search(self._held, max(begin, self._seen - 3))) is not None:
            events.append(bytes(self._held[begin : match.end()]))
            begin = self._seen = match.end()
        del self._held[:begin]
        self._seen = len(self._held)
        if len(self._held) > self.limit_bytes:
            raise EventTooLong(f"an event of more than {self.limit_bytes} bytes")
        return events

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return bytes(self._held)


def data_of(event: bytes) -> bytes:
    """The payload of an event: its data lines, joined; empty for a comment."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def json_of(event: bytes) -> dict[str, Any] | None:
    """The JSON object that an event carries, None when it carries none."""
    try:
        value = json.loads(data_of(event))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

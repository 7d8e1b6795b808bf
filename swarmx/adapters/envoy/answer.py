"""What an answer tells while it passes: first token, tokens so far, and the server's own count at the end.

Works on server-sent events and on whole JSON bodies. Memory is bounded: of a stream only the current line is kept, of a
body at most `MAX_KEPT` bytes from its end, where the usage stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_KEPT = 256 * 1024
_USAGE = re.compile(rb'"usage"\s*:\s*\{')


class Answer:
    """One answer on its way; feed it chunks as they come."""

    def __init__(self) -> None:
        self.status = 200
        self.is_stream = False
        self.events = 0
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens = 0
        self.failed = False
        self.done = False  # a stream has said that it is over
        self._rest = b""

    def begin(self, status: int, content_type: str) -> None:
        """Response headers."""
        self.status = status
        self.is_stream = content_type.startswith("text/event-stream")

    @property
    def tokens(self) -> int:
        """Output tokens: as the server counted them, else one per event that carried content."""
        return self.events if self.output_tokens is None else self.output_tokens

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300 and not self.failed

    def feed(self, chunk: bytes) -> int:
        """Take a chunk; returns how many content events it completed."""
        if not self.is_stream:
            self._rest = (self._rest + chunk)[-MAX_KEPT:]
            return 0
        before = self.events
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()[-MAX_KEPT:]
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        return self.events - before

    def end(self) -> None:
        """The body is complete."""
        if self.is_stream:
            if self._rest.startswith(b"data:"):
                self._event(self._rest[5:].strip())
        elif self.ok:
            self._whole(self._rest)
        self._rest = b""

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]" or not data:
            self.done = self.done or bool(data)
            return
        if b'"usage":null' in data or b'"usage"' not in data:  # nearly every event: no need to parse it
            self.failed = self.failed or data.startswith(b'{"error"')
            head = data[:80]  # events of the responses API say their type, and only deltas are output
            self.events += not data.startswith(b'{"error"') and (b'"response.' not in head or b".delta" in head)
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        if event.get("choices"):
            self.events += 1
        whole = event.get("response")
        self._usage(whole.get("usage") if isinstance(whole, dict) else event.get("usage"))

    def _whole(self, body: bytes) -> None:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):  # longer than what was kept: the usage is an object near the end
            data = _tail_usage(body)
        if isinstance(data, dict):
            self._usage(data.get("usage"))

    def _usage(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        self.prompt_tokens = _count(usage.get("prompt_tokens", usage.get("input_tokens")), self.prompt_tokens)
        self.output_tokens = _count(usage.get("completion_tokens", usage.get("output_tokens")), self.output_tokens)
        details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
        if isinstance(details, Mapping):
            self.cached_tokens = _count(details.get("cached_tokens"), 0) or 0


def _tail_usage(body: bytes) -> dict[str, Any] | None:
    last = None
    for last in _USAGE.finditer(body):  # noqa: B007  the last one counts
        pass
    if last is None:
        return None
    try:
        usage, _ = json.JSONDecoder().raw_decode(body[last.end() - 1 :].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return {"usage": usage}


def _count(value: Any, default: int | None) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return value
    return default

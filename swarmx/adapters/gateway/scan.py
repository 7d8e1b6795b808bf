"""Reads an answer on its way to the client: tokens, usage, whether it is whole; forwards it byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swarmx.adapters.gateway.sse import EventSplitter, data_of, json_of

ENDINGS = ("response.completed", "response.failed", "response.incomplete")


class Usage:
    """Token counts as the server told them; None where it did not."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self) -> None:
        self.prompt: int | None = None
        self.output: int | None = None
        self.cached = 0

    def read(self, usage: Any) -> None:
        """Take over a usage object of any of the APIs; what is malformed is left out."""
        if not isinstance(usage, Mapping):
            return
        self.prompt = _count(usage, "prompt_tokens", "input_tokens") or self.prompt
        self.output = _count(usage, "completion_tokens", "output_tokens") or self.output
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        if isinstance(details, Mapping):
            self.cached = _count(details, "cached_tokens") or 0


def _count(source: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    return None


def read_answer(raw: bytes) -> Usage:
    """Usage of a whole answer."""
    usage = Usage()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return usage
    if isinstance(body, dict):
        usage.read(body.get("usage"))
    return usage


class StreamScan:
    """One attempt's stream.

    hide_usage : the client did not ask for the event that holds nothing but usage
    keep_text : collect the text, to be able to go on elsewhere
    head : id and creation time that the client has seen, for the events of a continued answer
    Raises EventTooLong from `take`.
    """

    def __init__(self, hide_usage: bool, keep_text: bool, head: Mapping[str, Any] | None = None) -> None:
        self.hide_usage = hide_usage
        self.keep_text = keep_text
        self.continued = head is not None
        self.head: dict[str, Any] = dict(head or {})
        self.events = 0
        self.done = False
        self.finished = False
        self.usage = Usage()
        self.text: list[str] = []
        self._splitter = EventSplitter()

    def take(self, piece: bytes) -> bytes:
        """Look at a piece; returns what the client gets of it."""
        events = self._splitter.feed(piece)
        kept = [shown for event in events if (shown := self._look(event))]
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def rest(self) -> bytes:
        return self._splitter.rest()

    def _look(self, event: bytes) -> bytes:
        if event.startswith((b"data: [DONE]", b"data:[DONE]")):
            self.done = True
            return event
        interesting = b'"usage"' in event or b'"response.' in event
        if not (interesting or self.keep_text or self.continued):
            self.events += 1
            self.finished = self.finished or _finishes(event)
            return event
        return self._read(event)

    def _read(self, event: bytes) -> bytes:
        body = json_of(event)
        if body is None:
            self.events += bool(data_of(event))
            return event
        self._read_response(body)
        choices = body.get("choices")
        self.usage.read(body.get("usage"))
        if choices == [] and isinstance(body.get("usage"), dict):
            return b"" if self.hide_usage else self._shown(event, body)
        self.events += 1
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self.finished = self.finished or choices[0].get("finish_reason") is not None
            if self.keep_text:
                self.text.append(_text(choices[0]))
        if not self.head:
            self.head = {k: body[k] for k in ("id", "created") if k in body}
        return self._shown(event, body)

    def _read_response(self, body: Mapping[str, Any]) -> None:
        """Events of the responses API say their type, and end with the whole response."""
        if body.get("type") in ENDINGS:
            self.done = self.finished = True
            response = body.get("response")
            if isinstance(response, Mapping):
                self.usage.read(response.get("usage"))

    def _shown(self, event: bytes, body: dict[str, Any]) -> bytes:
        if not self.continued:
            return event
        return b"data: " + json.dumps({**body, **self.head}, separators=(",", ":")).encode() + b"\n\n"


def _finishes(event: bytes) -> bool:
    """Whether an event carries a finish reason, without parsing it."""
    at = event.find(b'"finish_reason":')
    return at >= 0 and not event[at + 16 : at + 22].lstrip().startswith(b"null")


def _text(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    return text if isinstance(text, str) else ""

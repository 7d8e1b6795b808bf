"""What a request asks for: read from its body, which is otherwise passed on as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from swarmx.adapters.gateway.errors import Refused
from swarmx.types import Messages

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
MAX_NESTING = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request.

    body : the parsed JSON object, never changed; prompt_chars : characters of text in the prompt
    max_tokens : output limit, if any; usage_wanted : the client asked for usage in its stream
    """

    path: str
    body: Mapping[str, Any]
    model: str
    stream: bool
    prompt: str | Messages
    prompt_chars: int
    max_tokens: int | None
    usage_wanted: bool
    size_bytes: int


def read(path: str, raw: bytes, media: str) -> Asked:
    """Parse a body. media : "data" refuses links that the model server would fetch. Raises Refused (400)."""
    try:
        body = _decoder.decode(raw.decode(json.detect_encoding(raw), "surrogatepass"))
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON", "invalid_json") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object", "invalid_json")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "you must provide a model parameter", "missing_required_parameter", "model")
    prompt, texts = _prompt(path, body)
    if media == "data":
        _check_links(texts)
    stream, options = body.get("stream"), body.get("stream_options")
    if stream not in (None, True, False):
        raise Refused(400, "stream must be true or false", "invalid_type", "stream")
    usage_wanted = isinstance(options, dict) and bool(options.get("include_usage"))
    return Asked(
        path, body, model, bool(stream), prompt, _characters(texts), _limit(body), usage_wanted, len(raw)
    )  # fmt: skip


def encode(asked: Asked, extra: Mapping[str, Any]) -> bytes:
    """The body for the replica. It is always written anew, so that both sides read the same object.

    Unknown fields and their order stay; of a key that came twice the last one stays, as JSON readers take it.
    """
    body = {**asked.body, **extra} if extra else asked.body
    return _encoder.encode(body).encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
_encoder = json.JSONEncoder(separators=(",", ":"))


def _prompt(path: str, body: Mapping[str, Any]) -> tuple[str | Messages, Any]:
    """(prompt as the predictor reads it, everything that may hold text or links)."""
    if path == "/v1/chat/completions":
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages) or not messages:
            raise Refused(400, "messages must be a list of messages, not empty", "invalid_type", "messages")
        return tuple(messages), [m.get("content") for m in messages]
    name = "prompt" if path == "/v1/completions" else "input"
    value = body.get(name)
    if not isinstance(value, str | list) or not value:
        raise Refused(400, f"{name} must be text or a list, not empty", "invalid_type", name)
    if isinstance(value, list) and all(isinstance(m, dict) for m in value):
        return tuple(value), value
    return (value if isinstance(value, str) else "\n".join(v for v in value if isinstance(v, str))), value


def _limit(body: Mapping[str, Any]) -> int | None:
    """Output tokens that the client allows."""
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = body.get(name)
        if value is None:
            continue
        whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
        if not whole or value != int(value):
            raise Refused(400, f"{name} must be a whole number, not negative", "invalid_type", name)
        return int(value)
    return None


def _characters(value: Any, depth: int = 0) -> int:
    """Characters of text inside; a token id counts as four."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        if value and isinstance(value[0], int):
            return 4 * len(value)
        return sum(_characters(v, depth + 1) for v in value) if depth < MAX_NESTING else 0
    if isinstance(value, dict):
        text = value.get("text", value.get("content"))
        return _characters(text, depth + 1) if depth < MAX_NESTING else 0
    return 0


def _check_links(value: Any) -> None:
    for link in _links(value, 0):
        if not link.startswith("data:"):
            raise Refused(
                400,
                f"links are not fetched ({link[:60]}...); send the content itself as a data: URL",
                "remote_media_refused",
            )


def _links(value: Any, depth: int) -> Iterator[str]:
    """Values under any key that ends in url (image_url, file_url, url, ...), at any depth."""
    if depth > MAX_NESTING:
        raise Refused(400, f"content is nested deeper than {MAX_NESTING}", "too_deep")
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, str | int | float):
                yield from _links(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and key.lower().endswith("url"):
                yield item
            elif not isinstance(item, str):
                yield from _links(item, depth + 1)

"""What a picker reads out of an OpenAI-style request body: chat, completions and responses.

A body that cannot be read is no reason to fail a request: it is routed without a prompt, and the model server answers
with its own error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarmx.predict.tools import with_tools
from swarmx.types import Messages

MOST_TOKENS = 10**15  # a limit beyond is as none


@dataclass(frozen=True, slots=True)
class Body:
    """model : "" when the body names none; chars : length of the prompt's text; readable : whether it was JSON"""

    model: str = ""
    prompt: str | Messages = ""
    chars: int = 0
    max_tokens: int | None = None
    stream: bool = False
    readable: bool = False


def read_body(raw: bytes) -> Body:
    """Never raises; what is missing or of the wrong type is left at its default."""
    if not raw:
        return Body()
    try:
        data = json.loads(raw)
        return body_of(data) if isinstance(data, dict) else Body(chars=len(raw))
    except (ValueError, RecursionError):  # what could be read may still be nested too deep to be written again
        return Body(chars=len(raw))


def body_of(data: Mapping[str, Any]) -> Body:
    """A request that is a mapping already; never raises."""
    prompt = with_tools(_prompt(data), data.get("tools"))
    model = data.get("model")
    return Body(
        model=model if isinstance(model, str) else "",
        prompt=prompt,
        chars=_chars(prompt),
        max_tokens=_limit(data),
        stream=data.get("stream") is True,
        readable=True,
    )


def _prompt(data: Mapping[str, Any]) -> str | Messages:
    messages = data.get("messages", data.get("input"))
    if isinstance(messages, list):
        instructions = data.get("instructions")
        lead = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
        return tuple([*lead, *(m for m in messages if isinstance(m, dict))])
    if isinstance(messages, str):
        return messages
    prompt = data.get("prompt")
    if isinstance(prompt, list):
        return "\n".join(p for p in prompt if isinstance(p, str))
    return prompt if isinstance(prompt, str) else ""


def _chars(prompt: str | Messages) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    return sum(_content_chars(m.get("content")) for m in prompt)


def _content_chars(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(len(p["text"]) for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return 0


def _limit(data: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_TOKENS:
            return value
    return None

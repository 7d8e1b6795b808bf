"""The bodies that an emulated engine reads and writes: OpenAI's chat, completions, embeddings and responses."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Api = Literal["chat", "completion", "response"]
Body = Mapping[str, Any]
_words = re.compile(r"(?:w\d+ )+$")
BLOCK_CHARS = 64  # one prefix-cache block: 16 tokens of four characters


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    text : the whole prompt; held_tokens : answer tokens that the prompt carries already, to be continued
    """

    api: Api
    text: str
    prompt_tokens: int
    held_tokens: int
    max_tokens: int | None
    stream: bool
    usage_wanted: bool
    tool: str | None

    @property
    def blocks(self) -> tuple[int, ...]:
        """Chained hashes of the prompt's full blocks."""
        out, last = [], 0
        for begin in range(0, len(self.text) - BLOCK_CHARS + 1, BLOCK_CHARS):
            last = hash((last, self.text[begin : begin + BLOCK_CHARS]))
            out.append(last)
        return tuple(out)


def asked(api: Api, body: Body) -> Asked:
    """Read a request body; lenient, as it is a test engine."""
    messages = body.get("messages") or []
    held = ""
    if api == "chat" and body.get("continue_final_message") and messages:
        held, messages = _text(messages[-1].get("content")), messages[:-1]
    if api == "chat":
        text = "\n".join(f"{m.get('role', '')}: {_text(m.get('content'))}" for m in messages)
    else:
        text = _text(body.get("prompt") if api == "completion" else body.get("input"))
    if api == "completion" and (carried := _words.search(text)):
        text, held = text[: carried.start()], carried.group()
    limit = body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens")
    limit = None if limit is None else int(limit)  # JSON may write a whole number as 5.0
    tools = [t["function"]["name"] for t in body.get("tools") or [] if t.get("type") == "function" and "function" in t]
    tool = tools[0] if api == "chat" and tools and body.get("tool_choice") not in (None, "auto", "none") else None
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Asked(
        api, text, max(1, len(text + held) // 4), held.count(" "), limit, bool(body.get("stream")), usage, tool
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(v.get("text", v.get("content", ""))) if isinstance(v, dict) else str(v) for v in value)
    return ""


def words(begin: int, end: int) -> str:
    """Tokens begin..end of every answer: one word each, so that a test can see what is missing."""
    return "".join(f"w{i} " for i in range(begin, end))


def usage(prompt: int, output: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def whole(ask: Asked, head: Body, text: str, finish: str, used: Body) -> dict[str, Any]:
    """A complete answer."""
    if ask.api == "response":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        return {
            **head, "object": "response", "status": "completed", "output": [item], "created_at": head["created"],
            "usage": _response_usage(used), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
    if ask.api == "completion":
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return {**head, "object": "text_completion", "choices": [choice], "usage": used}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if ask.tool is not None:
        call = {"id": "call_1", "type": "function", "function": {"name": ask.tool, "arguments": "{}"}}
        message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": used}


def chunk(ask: Asked, head: Body, text: str, finish: str | None, first: bool) -> bytes:
    """One event of a streamed answer."""
    if ask.api == "response":
        return event({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
                      "delta": text, "sequence_number": 1, "logprobs": []}, "response.output_text.delta")  # fmt: skip
    if ask.api == "completion":
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return event({**head, "object": "text_completion", "choices": [choice]})
    delta: dict[str, Any] = {"content": text}
    if first:
        delta["role"] = "assistant"
    if ask.tool is not None and first:
        function = {"name": ask.tool, "arguments": "{}"}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}],
        }
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**head, "object": "chat.completion.chunk", "choices": [choice]})


def tail(ask: Asked, head: Body, text: str, finish: str, used: Body) -> bytes:
    """What ends a streamed answer."""
    if ask.api == "response":
        done = {"type": "response.completed", "sequence_number": 2, "response": whole(ask, head, text, finish, used)}
        return event(done, "response.completed")
    kind = "text_completion" if ask.api == "completion" else "chat.completion.chunk"
    last = event({**head, "object": kind, "choices": [], "usage": used}) if ask.usage_wanted else b""
    return last + b"data: [DONE]\n\n"


def event(body: Body, name: str | None = None) -> bytes:
    """One server-sent event."""
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def embedding(text: str, size: int = 8) -> list[float]:
    """A vector that is the same for the same text."""
    raw = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).digest()
    return [b / 127.5 - 1 for b in raw]


def _response_usage(used: Body) -> dict[str, Any]:
    return {
        "input_tokens": used["prompt_tokens"],
        "output_tokens": used["completion_tokens"],
        "total_tokens": used["total_tokens"],
        "input_tokens_details": used["prompt_tokens_details"],
        "output_tokens_details": {"reasoning_tokens": 0},
    }

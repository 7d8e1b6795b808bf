"""Going on with a broken answer on another replica: the text so far becomes part of the prompt."""

from __future__ import annotations

from typing import Any

from swarmx.adapters.gateway.asked import Asked


def can_resume(asked: Asked) -> bool:
    """Whether the text so far says all there is: one choice, streamed, no tools, no log probabilities."""
    body = asked.body
    if not asked.stream or body.get("n", 1) not in (None, 1) or body.get("tools") or body.get("logprobs"):
        return False
    if asked.path == "/v1/completions":
        return isinstance(asked.prompt, str)
    return asked.path == "/v1/chat/completions"


def resumed(asked: Asked, text: str, tokens: int) -> dict[str, Any]:
    """Fields of the request that continues an answer; chats do it with vLLM's `continue_final_message`.

    text, tokens : what the client has already
    """
    extra: dict[str, Any] = {}
    for name in ("max_completion_tokens", "max_tokens"):
        limit = asked.body.get(name)
        if isinstance(limit, int):
            extra[name] = max(1, limit - tokens)
    if asked.path == "/v1/completions":
        return {**extra, "prompt": f"{asked.prompt}{text}"}
    messages = [*asked.body["messages"], {"role": "assistant", "content": text}]
    return {**extra, "messages": messages, "continue_final_message": True, "add_generation_prompt": False}

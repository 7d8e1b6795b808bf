"""Prompts as every adapter reads them: one text, and the hashes of its leading blocks."""

from __future__ import annotations

from collections.abc import Sequence

from swarmx.prefix import block_hashes
from swarmx.types import Messages

CHARS_PER_TOKEN = 4.0  # until answers have told the pool's own ratio
BLOCK_BYTES, MOST_BLOCKS = 256, 512  # 64 tokens of four characters, the scheduler's default block


def prefix_blocks(prompt: str | Messages) -> tuple[int, ...]:
    """Hashes of a prompt's leading blocks of about 64 tokens, the first 512 of them.

    A conversation that goes on begins with the blocks of its earlier turns.
    """
    text = prompt if isinstance(prompt, str) else _lines(prompt)
    return block_hashes(text[: BLOCK_BYTES * MOST_BLOCKS].encode("utf-8", "replace"), BLOCK_BYTES)


def text_of(prompt: str | Messages) -> str:
    """A prompt as one text: chat messages as lines `role: text`, a lone user message without its role."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0].get("role", "user") == "user":
        return _content(prompt[0].get("content"))
    return _lines(prompt)


def _lines(messages: Messages) -> str:
    return "\n".join(f"{m.get('role', 'user')}: {_content(m.get('content'))}" for m in messages)


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return ""

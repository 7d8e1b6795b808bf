"""From whatever a call carries as its prompt to one bounded piece of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# A prompt's kind and task sit at its ends; the middle of a long document says little about the answer's length.
HEAD_CHARS = 4096
TAIL_CHARS = 4096


def text_of(prompt: object) -> str:
    """The prompt as one string: chat messages become `role: content` lines, unreadable parts are left out.

    Never raises: whatever is neither text nor messages becomes the empty string. Lone surrogates, which no tokenizer
    takes, become `?`.
    """
    if isinstance(prompt, str):
        text = prompt
    elif isinstance(prompt, Sequence) and not isinstance(prompt, bytes):
        text = "\n".join(f"{m.get('role', '')}: {_content(m.get('content'))}" for m in prompt if isinstance(m, Mapping))
    else:
        text = ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _content(content: object) -> str:
    """Text of one message; multi-part content keeps its text parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


def clip(text: str, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> str:
    """The first `head` and last `tail` characters, joined by a line break; shorter texts as they are."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[-tail:]}"

"""What a call's tools say about its answer: how many there are, what they ask for, and whether one fits the prompt.

Adapters and logs put the tools of a request in front of its prompt, as a first message of role `tools` that holds the
request's JSON list (`with_tools`); `text_of` makes of it a first line `tools: [...]`. That line is counted here and
kept from n-grams and encoder: pooled text cannot compare a prompt with its tools, and schema text beside the prompt
drowns it. On real function calls the counts of one against the other were worth 0.09 of R2 where no type is known.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.types import Messages

ROLE = "tools"
_LINE = f"{ROLE}: ["
READ_CHARS = 200_000  # longer lists are only measured
TOOLS = 128  # read of one list
SAID_CHARS = 400  # of a tool's description that an encoder is given
TOOL_COUNTS = (
    "tools", "tool_characters", "parameters", "required", "most_parameters", "most_required", "fewest_required",
    "enums", "defaults", "fields", "string_fields", "number_fields", "list_fields", "object_fields",
    "fit_best", "fit_ahead", "fit_name", "fit_parameters", "fit_any", "best_parameters", "best_required",
    "given_less_required",
)  # fmt: skip
SCALE = 3.0  # shares in [0, 1] are stretched to the range of logarithms of counts

_piece = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_given = re.compile(r"\d+|'[^'\n]+'|\"[^\"\n]+\"")
_ENDINGS = ("ing", "ies", "es", "ed", "s")
_COMMON = frozenset((
    "the", "a", "an", "of", "to", "in", "for", "and", "or", "is", "are", "be", "with", "on", "this", "that", "it", "as",
    "by", "from", "at", "if", "not", "any", "can", "will", "which", "used", "use", "using", "your", "you", "me", "my",
    "what", "how", "please",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tool:
    """Stems of a tool's name, of name and description, of its parameters; numbers of parameters and required ones."""

    name: frozenset[str]
    about: frozenset[str]
    parameters: frozenset[str]
    count: int
    required: int


@dataclass(frozen=True, slots=True)
class ToolList:
    """A list of tools, read once.

    counts : log(1 + n) of the first 14 of `TOOL_COUNTS`; held : how many tools have a word in name or description;
    every : words of all of them and of their parameters; described : "name: description" of each, for an encoder
    """

    tools: tuple[Tool, ...]
    counts: NDArray[np.float32]
    held: Mapping[str, int] = field(default_factory=dict)
    every: frozenset[str] = frozenset()
    described: tuple[str, ...] = ()


def with_tools(prompt: str | Messages, tools: object) -> str | Messages:
    """The prompt with the tools of its request in front; unchanged when there are none.

    tools : the request's `tools`, or the bare list of functions
    """
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        return prompt
    line = json.dumps(list(tools), separators=(",", ":"), default=str)
    if isinstance(prompt, str):
        return f"{ROLE}: {line}\n{prompt}"
    return ({"role": ROLE, "content": line}, *prompt)


def without_tools(text: str) -> tuple[str, str]:
    """(JSON of the tools or "", the rest) of a prompt's text."""
    if not text.startswith(_LINE):
        return "", text
    line, _, rest = text.partition("\n")
    return line[len(ROLE) + 2 :], rest


def tool_counts(tools: str, text: str, asked: Iterable[frozenset[str]] | None = None) -> NDArray[np.float32]:
    """`TOOL_COUNTS` of a call, zeros without tools. Never raises.

    tools : JSON; text : of the prompt; asked : stems of its parts, where they are known
    """
    out = np.zeros(len(TOOL_COUNTS), np.float32)
    if not tools:
        return out
    found = read_tools(tools) if len(tools) <= READ_CHARS else ToolList((), np.zeros(14, np.float32))
    out[:14] = found.counts
    out[1] = math.log1p(len(tools))
    if found.tools:
        out[14:] = _fit(found, text, frozenset().union(*([stems(text)] if asked is None else asked)))
    return out


@lru_cache(maxsize=256)
def read_tools(text: str) -> ToolList:
    """Parse a list once: the calls of an agent share theirs. What is not a tool counts as none. Never raises."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = []
    functions = [_function(item) for item in (items if isinstance(items, list) else [])[:TOOLS]]
    functions = [function for function in functions if function]
    tools = tuple(_tool(function) for function in functions)
    kinds = [str(field.get("type")) for function in functions for field in _properties(function).values()]
    wanted = [tool.required for tool in tools]
    numbers = [
        len(items) if isinstance(items, list) else 0, len(text), sum(tool.count for tool in tools), sum(wanted),
        max((tool.count for tool in tools), default=0), max(wanted, default=0), min(wanted, default=0),
        text.count('"enum"'), text.count('"default"'), text.count('"type"'),
        kinds.count("string"), sum(kinds.count(kind) for kind in ("integer", "number", "float")),
        kinds.count("array"), sum(kinds.count(kind) for kind in ("object", "dict")),
    ]  # fmt: skip
    held = Counter(word for tool in tools for word in tool.about)
    every = frozenset().union(*(tool.about | tool.parameters for tool in tools))
    return ToolList(tools, np.log1p(np.array(numbers, np.float32)), held, every, tuple(map(_described, functions)))


def described(tools: str) -> tuple[str, ...]:
    """One sentence for each tool of a list given as JSON; none where the list is too long to be read. Never raises."""
    return read_tools(tools).described if tools and len(tools) <= READ_CHARS else ()


def _described(function: Mapping[str, Any]) -> str:
    name = str(function.get("name", "")).replace("_", " ").replace(".", " ")
    return f"{name[:SAID_CHARS]}: {str(function.get('description') or '')[:SAID_CHARS]}"


def _function(item: object) -> Mapping[str, Any]:
    """The function of a tool in OpenAI's form, or the item itself; empty when it is neither."""
    if not isinstance(item, Mapping):
        return {}
    inner = item.get("function", item)
    return inner if isinstance(inner, Mapping) else {}


def _properties(function: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    schema = function.get("parameters") or function.get("input_schema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping):
        return {}
    return {str(name): field for name, field in fields.items() if isinstance(field, Mapping)}


def _tool(function: Mapping[str, Any]) -> Tool:
    schema, fields = function.get("parameters") or function.get("input_schema"), _properties(function)
    required = schema.get("required") if isinstance(schema, Mapping) else None
    name = stems(str(function.get("name", "")))
    about = stems(str(function.get("description", ""))[:2000])
    words = " ".join([*fields, *(str(field.get("description", ""))[:500] for field in fields.values())])
    return Tool(name, name | about, stems(words), len(fields), len(required) if isinstance(required, list) else 0)


def stems(text: str) -> frozenset[str]:
    """Words of a text without endings, camelCase and snake_case taken apart, the commonest left out."""
    words = {word.lower() for word in _piece.findall(text)}
    return frozenset(_stem(word) for word in words if len(word) > 1 and word not in _COMMON)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _fit(given: ToolList, text: str, asked: frozenset[str]) -> list[float]:
    """The last eight of `TOOL_COUNTS`: the prompt against each tool, a word weighing less the more tools hold it."""
    tools, alone = given.tools, 1 + math.log(len(given.tools))
    weight = {word: _worth(word) * (alone - math.log(given.held.get(word, 1))) for word in asked & given.every}
    # exact sums: a set's order differs between processes, and the last bit decides which of two like tools is best
    total = alone * math.fsum(map(_worth, asked - given.every)) + math.fsum(weight.values()) or 1.0

    def share(words: frozenset[str]) -> float:
        return math.fsum(weight[word] for word in asked & words) / total

    about = [share(tool.about) for tool in tools]
    named = [len(asked & tool.name) / max(len(tool.name), 1) for tool in tools]
    best = max(range(len(tools)), key=lambda i: about[i] + named[i])
    ordered = sorted(about, reverse=True)
    values = len(_given.findall(text))
    return [
        SCALE * ordered[0], SCALE * (ordered[0] - (ordered[1] if len(ordered) > 1 else 0.0)), SCALE * named[best],
        SCALE * share(tools[best].parameters), SCALE * share(given.every), math.log1p(tools[best].count),
        math.log1p(tools[best].required), math.log1p(values) - math.log1p(tools[best].required),
    ]  # fmt: skip


@lru_cache(maxsize=16384)
def _worth(word: str) -> float:
    """Numbers weigh little; longer words are rarer everywhere."""
    return 0.3 if word[0].isdigit() else min(len(word), 10) / 5

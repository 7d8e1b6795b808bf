"""From what a handle call carries to a `Call`: its prompt, and whose work it is.

The prompt is looked for in keyword arguments, then in positional ones: a text, a list of chat messages, an OpenAI
request as a mapping or as an object (Ray Serve LLM's). Whose work it is, in order: `x-swarmx-*` headers in a mapping or
object with headers among the arguments; arguments or metadata named `swarmx_*`; the `swarmx.client.workflow` around the
call; the handle's session id; else Serve's request id, which all handle calls made for one ingress request share, so
that an agent which runs inside a deployment is one workflow without a word. Nothing here imports Ray.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarmx import client
from swarmx.adapters.envoy.body import Body, body_of
from swarmx.adapters.gateway.identity import PREFIX, SESSION_HEADERS, identity_of
from swarmx.adapters.prompts import CHARS_PER_TOKEN, prefix_blocks, text_of
from swarmx.types import Call

BODY_FIELDS = (
    "messages", "prompt", "input", "instructions", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "metadata",
)  # fmt: skip
HEADERS = frozenset(SESSION_HEADERS) | {"traceparent"}
# Workflow -> first sight, by all handles of this process, as agents call several models. Routers must not import it by
# name: Serve pickles their module by value, and each would get a copy.
BEGAN: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """body : prompt and limits; headers : lower-case names, those that say whose work it is"""

    body: Body
    headers: dict[str, str]
    metadata: dict[str, Any]


def read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Asked:
    """What the arguments of a call say; defaults for what they do not."""
    body, metadata = Body(), dict[str, Any]()
    others = [v for v in kwargs.values() if not isinstance(v, str)]  # a text is a prompt by its place or name alone
    for candidate in (kwargs, *args, *others):
        data = _mapping(candidate)
        if data is None:
            continue
        found = body_of(data)
        if found.prompt:
            body = found
            if isinstance(data.get("metadata"), Mapping):
                metadata = dict(data["metadata"])
            break
    metadata |= {k: v for k, v in kwargs.items() if k.startswith("swarmx_")}
    headers: dict[str, str] = {}
    for candidate in (*args, *kwargs.values()):
        headers |= dict(_headers(candidate))
    return Asked(body, headers, metadata)


def key_of(internal_request_id: str, asked: Asked) -> str:
    """Names a call to router and replica alike.

    Serve's internal id alone does not: all calls that a deployment makes for one request share it.
    """
    return f"{internal_request_id}/{zlib.crc32(text_of(asked.body.prompt).encode('utf-8', 'replace')):08x}"


def share_of(workflow: str) -> float:
    """A number in [0, 1) that is the same for the same workflow."""
    return zlib.crc32(workflow.encode("utf-8", "replace")) / 2**32


def call_of(asked: Asked, metadata: Any, model: str, context: Mapping[str, str], now: float) -> Call:
    """The call. metadata : Serve's RequestMetadata; context : headers of `swarmx.client` around the call"""
    who = identity_of({**context, **asked.headers}, {"metadata": asked.metadata}, now, None)
    method = metadata.call_method
    prompt = asked.body.prompt
    return Call(
        id=who.call_id, model=model, arrival_s=now, prompt=prompt,
        prompt_tokens=max(1, round(asked.body.chars / CHARS_PER_TOKEN)), max_tokens=asked.body.max_tokens,
        parent_id=who.parent_id, workflow_id=who.workflow_id or metadata.session_id or metadata.request_id,
        workflow_arrival_s=who.workflow_arrival_s, tenant=who.tenant, priority=who.priority,
        type=who.type or (None if method == "__call__" else method), deadline_s=who.deadline_s,
        prefix_blocks=prefix_blocks(prompt), streamed=bool(metadata.is_streaming),
    )  # fmt: skip


def context_headers() -> dict[str, str]:
    """Those of the workflow around the caller; empty outside of one."""
    found = client.headers()
    return found if PREFIX + "workflow-id" in found else {}


def _mapping(candidate: Any) -> Mapping[str, Any] | None:
    """Something that may be an OpenAI request, as one."""
    if isinstance(candidate, str):
        return {"prompt": candidate}
    if isinstance(candidate, Mapping):
        return {k: _plain(v) if k == "messages" else v for k, v in candidate.items() if isinstance(k, str)}
    if isinstance(candidate, list | tuple):
        messages = _plain(candidate)
        return {"messages": messages} if any(isinstance(m, Mapping) and "role" in m for m in messages) else None
    if any(hasattr(candidate, name) for name in ("messages", "prompt")):
        data = {name: getattr(candidate, name, None) for name in BODY_FIELDS}
        data["messages"] = _plain(data["messages"])
        return {k: v for k, v in data.items() if v is not None}
    return None


def _plain(messages: Any) -> Any:
    """Chat messages as mappings, whatever class holds them."""
    if not isinstance(messages, list | tuple):
        return messages
    return [m.model_dump() if hasattr(m, "model_dump") else m for m in messages]


def _headers(candidate: Any) -> Iterator[tuple[str, str]]:
    """Pairs of a mapping of headers, or of an object or mapping that has some."""
    if not isinstance(candidate, Mapping):
        candidate = getattr(candidate, "headers", None)
    elif isinstance(candidate.get("headers"), Mapping):
        candidate = candidate["headers"]
    if not isinstance(candidate, Mapping):
        return
    for name, value in candidate.items():
        if isinstance(name, str) and isinstance(value, str):
            lower = name.lower()
            if lower.startswith(PREFIX) or lower in HEADERS:
                yield lower, value

"""One streamed chat completion from an OpenAI-compatible server, timed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swarmx.errors import BadInput
from swarmx.types import Status

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that takes calls.

    url : up to and without /v1; device : kind of hardware; weight : its share under the random policy;
    slots : calls that it runs at once, None when unknown
    """

    url: str
    device: str = "default"
    weight: float = 1.0
    slots: int | None = None

    @property
    def replica(self) -> str:
        return self.url.split("://", 1)[-1]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back of one call; times on the clock that was given, tokens as the server counted them."""

    status: Status
    text: str
    first_token_s: float | None
    finished_s: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""


def parse_endpoint(text: str) -> Endpoint:
    """`URL[=device[*weight]]`, for example `http://127.0.0.1:8000=h200*2`. Raises BadInput."""
    url, _, rest = text.partition("=")
    device, _, weight = rest.partition("*")
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"--endpoint {text!r} must start with http:// or https://, like http://127.0.0.1:8000=a100")
    try:
        share = float(weight) if weight else 1.0
    except ValueError:
        share = 0.0
    if not 0 < share < float("inf"):
        raise BadInput(f"--endpoint {text!r}: the weight {weight!r} must be a number above 0, like =a100*2")
    return Endpoint(url.rstrip("/").removesuffix("/v1"), device or "default", share)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON payloads of a server-sent-event stream up to `[DONE]`."""
    async for line in response.content:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)


def _content(event: Mapping[str, Any]) -> str:
    choices = event.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")


async def stream_chat(
    session: aiohttp.ClientSession,
    url: str,
    body: Mapping[str, Any],
    clock: Callable[[], float],
    on_token: Callable[[], None],
) -> Reply:
    """Send one call and read it to its end; any failure of the server or the line becomes the reply's status.

    A server that reports no usage is counted by its chunks (one token each in the engines that we know); its prompt
    tokens are then 0.
    """
    import aiohttp

    parts: list[str] = []
    first: float | None = None
    usage: Mapping[str, Any] = {}
    status: Status = "ok"
    error = ""
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                raise aiohttp.ClientError(f"HTTP {response.status}: {(await response.text())[:200]}")
            async for event in events(response):
                if "error" in event:
                    raise aiohttp.ClientError(str(event["error"])[:200])
                if text := _content(event):
                    first = clock() if first is None else first
                    parts.append(text)
                    on_token()
                usage = event.get("usage") or usage
    except TimeoutError:
        status, error = "timeout", "no answer in time"
    except (aiohttp.ClientError, OSError, json.JSONDecodeError) as problem:
        status, error = "error", f"{type(problem).__name__}: {problem}"
    details = usage.get("prompt_tokens_details") or {}
    return Reply(
        status=status,
        text="".join(parts),
        first_token_s=first,
        finished_s=clock(),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or len(parts)),
        cached_tokens=int(details.get("cached_tokens") or 0),
        error=error,
    )

"""Wraps the methods of a deployment so that each outermost call is counted, timed and measured."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from swarmx.adapters.ray_serve import identity

if TYPE_CHECKING:
    from swarmx.adapters.ray_serve.replica import Inside

CHARS_PER_TOKEN = 4.0
OUTPUT, PROMPT = ("completion_tokens", "output_tokens"), ("prompt_tokens", "input_tokens")  # fields of a usage
_inside: ContextVar[Inside | None] = ContextVar("swarmx_inside", default=None)
NOT_CALLS = frozenset({"record_routing_stats", "record_autoscaling_stats", "check_health", "reconfigure"})


def is_called(name: str, method: Any) -> bool:
    """Whether a class attribute is a method that handles call."""
    if name in NOT_CALLS or name.startswith("swarmx_") or (name.startswith("_") and name != "__call__"):
        return False
    # serve.batch and serve.multiplexed find their instance by the method's name, and break when wrapped once more
    return inspect.isfunction(method) and not method.__globals__["__name__"].startswith("ray.")


def current() -> Inside | None:
    """The call that this code is part of; None outside, and once that call is over (contexts may outlive it)."""
    inside = _inside.get()
    return None if inside is None or inside.over else inside


def named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, int]:
    """(the call's key, prompt tokens to expect)."""
    from ray.serve.context import _get_serve_request_context

    asked = identity.read(args, kwargs)
    key = identity.key_of(_get_serve_request_context()._internal_request_id, asked)
    return key, max(1, round(asked.body.chars / CHARS_PER_TOKEN))


def counted(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, counted on the `SwarmXReplica` that it is called on; calls from within a call are part of that."""
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def stream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with _counted(self, method, args, kwargs) as inside:
                async for chunk in method(self, *args, **kwargs):
                    _chunk(inside, chunk)
                    yield chunk

        return stream
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def answer(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _counted(self, method, args, kwargs) as inside:
                return _whole(inside, await method(self, *args, **kwargs))

        return answer
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def chunks(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with _counted(self, method, args, kwargs) as inside:
                for chunk in method(self, *args, **kwargs):
                    _chunk(inside, chunk)
                    yield chunk

        return chunks

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _counted(self, method, args, kwargs) as inside:
            return _whole(inside, method(self, *args, **kwargs))

    return whole


@contextmanager
def _counted(
    replica: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Inside | None]:
    if current() is not None:
        yield None
        return
    book = replica._swarmx_book()
    inside = book.enter(replica, args, kwargs, method.__name__)
    _inside.set(inside)
    status = "cancelled"
    try:
        yield inside
        status = "ok"
    except Exception:
        status = "error"
        raise
    finally:
        book.leave(replica, inside, status, inside.chunks if inside.tokens is None else inside.tokens)


def _whole(inside: Inside | None, result: Any) -> Any:
    if inside is not None:
        if inside.tokens is None:
            inside.tokens = tokens_in(result)
        inside.prompt_said(_usage(result, PROMPT))
    return result


def _chunk(inside: Inside | None, chunk: Any) -> None:
    if inside is None:
        return
    inside.chunks += 1
    if inside.chunks == 1:
        inside.first()
    if inside.tokens is None and (tokens := _usage(chunk)):
        inside.tokens = tokens
        inside.prompt_said(_usage(chunk, PROMPT))


def tokens_in(result: Any) -> int:
    """Output tokens of an answer: its usage, else its text at four characters a token; 0 when it has neither."""
    if isinstance(result, str):
        return max(1, round(len(result) / CHARS_PER_TOKEN))
    return _usage(result)


def _usage(result: Any, names: tuple[str, str] = OUTPUT) -> int:
    usage = _field(result, "usage")
    for name in names:
        value = _field(usage, name)
        if isinstance(value, int):
            return value
    return 0


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)

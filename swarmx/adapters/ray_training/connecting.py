"""Joins a Ray, or starts one on this machine."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from swarmx.adapters.ray_serve.versions import check_ray
from swarmx.errors import BadInput

_BAD_INPUT = re.compile(r"swarmx\.errors\.BadInput: (.+)")


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected; a connection that was there before is used and stays.

    address : of a cluster; None for RAY_ADDRESS, else a Ray on this machine, started where there is none
    Raises BadInput when Ray is missing or unsupported, or the cluster cannot be reached.
    """
    check_ray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own use of pydantic, at import
        import ray

    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError) as problem:
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise BadInput(f"no Ray at {address or 'RAY_ADDRESS'} ({first}); start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def cause_of(problem: BaseException) -> BaseException:
    """What a task raised, out of Ray's wrappings."""
    seen = problem
    while (inner := getattr(seen, "cause", None) or seen.__cause__) is not None and inner is not seen:
        seen = inner
    return seen


@contextmanager
def plain_errors() -> Iterator[None]:
    """A BadInput that a task raised arrives as one; anything else stays as Ray has it.

    Ray Data wraps what a task raises and keeps it as text alone, so that is where it is found.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as problem:
        if (found := _BAD_INPUT.search(str(problem))) is not None:
            raise BadInput(found[1].strip()) from None
        raise

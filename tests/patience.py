"""Waits for what another task or process is about to do.

A test waits for the thing itself and never says how soon it must come: how quick a thing is belongs in a benchmark.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 400.0  # only a test that fails waits so long, however slow the machine


async def until(holds: Callable[[], object]) -> None:
    """Raises TimeoutError when that has not come about in time."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


def wait_for(poll: Callable[[], T | None]) -> T:
    """The first thing that it finds. Raises TimeoutError when another process or thread has brought none in time."""
    ends = time.monotonic() + PATIENCE_S
    while (found := poll()) is None:
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not come about within {PATIENCE_S} s")
        time.sleep(0.02)
    return found


def wait_until(holds: Callable[[], object]) -> None:
    """Raises TimeoutError when another process or thread has not brought that about in time."""
    wait_for(lambda: True if holds() else None)

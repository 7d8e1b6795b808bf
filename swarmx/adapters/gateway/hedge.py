"""A second copy of a slow call on another replica, within a budget of extra work; the first to answer is taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from swarmx.adapters.gateway.exchange import Exchange
from swarmx.adapters.gateway.metrics import Metrics
from swarmx.adapters.gateway.settings import HedgeSettings

REMEMBERED = 1000  # calls over which the work budget is kept


@dataclass
class Hedger:
    """Decides whether a second copy may be sent, and runs the race."""

    settings: HedgeSettings
    metrics: Metrics
    _copies: deque[bool] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    async def run(self, first: Exchange, second: Callable[[], Exchange | None]) -> web.StreamResponse:
        """The response of whichever answers first. second : queues a copy; None when that is impossible"""
        first.task = asyncio.create_task(first.run())
        tasks = [first.task]
        self._copies.append(False)
        try:
            done, _ = await asyncio.wait(tasks, timeout=self.settings.after_s)
            if not done and not first.claimed and self._affordable() and (copy := second()) is not None:
                self._copies[-1] = True
                first.rival, copy.rival = copy, first
                copy.task = asyncio.create_task(copy.run())
                tasks.append(copy.task)
            return await self._first(tasks, first.pool.name)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _first(self, tasks: list[asyncio.Task[web.StreamResponse]], pool: str) -> web.StreamResponse:
        """The first good answer; when all fail, the failure of the first copy."""
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    if len(tasks) > 1:
                        self.metrics.hedged.labels(pool, "copy" if task is tasks[1] else "first").inc()
                    return task.result()
        return await tasks[0]

    def _affordable(self) -> bool:
        return sum(self._copies) + 1 <= max(1.0, self.settings.work_budget * len(self._copies))

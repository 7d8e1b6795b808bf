"""Run many workflows through a recorder: as an open loop (Poisson arrivals) or a closed one (a fixed number at once)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from swarmx.logs.record import Answer, Ask, CallFailed, Recorder, Task

Report = Callable[[], None]  # called whenever a workflow has ended


async def run_task(recorder: Recorder, task: Task, report: Report) -> None:
    """One workflow from its arrival to its end mark. A failed call ends it; a defect in it is raised."""
    born = recorder.clock()
    count = 0

    async def call(ask: Ask, after: Sequence[Answer] = ()) -> Answer:
        nonlocal count
        count += 1
        return await recorder.call(ask, after, f"{task.id}.{count}", task.id, born)

    failed = None
    try:
        await task.run(call)
    except CallFailed as problem:
        failed = str(problem)
    recorder.journal.end(task.id, failed)
    report()


def _open_tasks(recorder: Recorder, tasks: Sequence[Task], report: Report) -> list[Task]:
    left = [task for task in tasks if task.id not in recorder.journal.done]
    for _ in range(len(tasks) - len(left)):
        report()
    return left


async def open_loop(
    recorder: Recorder, tasks: Sequence[Task], rate: float, seed: int, report: Report = lambda: None
) -> None:
    """Workflows arrive as a Poisson process of `rate` a second, whatever the servers do; ends when all have ended.

    Workflows that the journal holds already are skipped; the others' gaps are drawn anew.
    """
    left = _open_tasks(recorder, tasks, report)
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, len(left))
    start = recorder.clock()
    async with asyncio.TaskGroup() as group:
        for task, due in zip(left, start + np.cumsum(gaps), strict=True):
            await asyncio.sleep(max(0.0, due - recorder.clock()))
            group.create_task(run_task(recorder, task, report))


async def closed_loop(
    recorder: Recorder, tasks: Sequence[Task], concurrency: int, report: Report = lambda: None
) -> None:
    """`concurrency` workflows at any time, each followed by the next at once."""
    left = iter(_open_tasks(recorder, tasks, report))

    async def work() -> None:
        for task in left:
            await run_task(recorder, task, report)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())

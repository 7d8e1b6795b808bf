"""Run workflows through a recorder, as an open loop (Poisson arrivals) or a closed one; read them from files."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np

from swarmx.errors import BadInput
from swarmx.logs.record import Answer, Ask, Caller, CallFailed, Recorder, Task, Workflow
from swarmx.types import Priority

Report = Callable[[], None]  # called whenever a workflow has ended
TEXTS = ("type", "group", "tenant")


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


@asynccontextmanager
async def first_failure() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises what went wrong first, by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def unfinished(recorder: Recorder, tasks: Sequence[Task], report: Report) -> list[Task]:
    """The tasks that the journal does not hold yet; the others are reported as ended."""
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
    left = unfinished(recorder, tasks, report)
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, len(left))
    start = recorder.clock()
    async with first_failure() as group:
        for task, due in zip(left, start + np.cumsum(gaps), strict=True):
            await asyncio.sleep(max(0.0, due - recorder.clock()))
            group.create_task(run_task(recorder, task, report))


async def closed_loop(
    recorder: Recorder, tasks: Sequence[Task], concurrency: int, report: Report = lambda: None
) -> None:
    """`concurrency` workflows at any time, each followed by the next at once."""
    left = iter(unfinished(recorder, tasks, report))

    async def work() -> None:
        for task in left:
            await run_task(recorder, task, report)

    async with first_failure() as group:
        for _ in range(concurrency):
            group.create_task(work())


def single(ask: Ask) -> Workflow:
    """The workflow of one call."""

    async def workflow(call: Caller) -> None:
        await call(ask)

    return workflow


def prompt_tasks(path: Path) -> list[Task]:
    """A workflow per line of a JSONL file: {prompt | messages, type, tenant, priority, max_tokens, group}.

    Raises BadInput for a file or a line that is not so.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: cannot be read as text ({problem}); give a file of JSON lines") from None
    asks = {number: parse_ask(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()}
    if not asks:
        raise BadInput(f'{path}: holds no prompt; write one JSON object a line, like {{"prompt": "Hello"}}')
    return [Task(f"prompt/{number}", single(ask)) for number, ask in asks.items()]


def parse_ask(line: str, place: str) -> Ask:
    """The call that a line of a prompt file describes. Raises BadInput that names `place` and the field."""
    try:
        row = json.loads(line)
    except ValueError:
        raise BadInput(f'{place}: not JSON; write one object a line, like {{"prompt": "Hello"}}') from None
    known = ("prompt", "messages", "priority", "max_tokens", *TEXTS)
    if not isinstance(row, dict) or (strange := set(row) - set(known)):
        what = f"unknown field {min(strange)!r}" if isinstance(row, dict) else "not an object"
        raise BadInput(f"{place}: {what}; the fields are {', '.join(known)}")
    for name in TEXTS:
        if not isinstance(row.get(name, ""), str):
            raise BadInput(f"{place}: {name} is {row[name]!r}, but must be a text")
    if row.get("priority", "normal") not in get_args(Priority):
        raise BadInput(f"{place}: priority is {row['priority']!r}; choose one of {', '.join(get_args(Priority))}")
    cap = row.get("max_tokens")
    if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
        raise BadInput(f"{place}: max_tokens is {cap!r}, but must be a whole number above 0")
    rest = {name: row[name] for name in ("priority", "max_tokens", *TEXTS) if name in row}
    return Ask(parse_prompt(row, place), **rest)


def parse_prompt(row: Mapping[str, Any], place: str) -> str | tuple[Mapping[str, Any], ...]:
    if ("prompt" in row) == ("messages" in row):
        raise BadInput(f"{place}: give either prompt or messages")
    if "prompt" in row:
        if not isinstance(row["prompt"], str) or not row["prompt"]:
            raise BadInput(f"{place}: prompt is {row['prompt']!r}, but must be a text that is not empty")
        return str(row["prompt"])
    messages = row["messages"]
    fits = isinstance(messages, list) and messages
    if not fits or not all(isinstance(m, dict) and {"role", "content"} <= set(m) for m in messages):
        raise BadInput(f"{place}: messages must be a list of objects with role and content")
    return tuple(messages)


def workflow_tasks(path: Path, count: int) -> list[Task]:
    """`count` workflows from a Python file that defines `workflow(number)`, which returns an async function of `call`.

    The file is run as it is: give only files that you trust. Raises BadInput when it has no such function.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file; give a Python file that defines workflow(number)")
    made = runpy.run_path(str(path)).get("workflow")
    if not callable(made):
        raise BadInput(f"{path}: defines no function workflow(number) that returns an async function of call")
    return [Task(f"workflow/{number}", made(number)) for number in range(count)]

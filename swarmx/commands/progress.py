"""One progress bar per step of a long command, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def reporting(quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A function (step, share done) that draws; one line per step. Draws nothing when quiet."""
    if quiet:
        yield lambda step, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    steps: dict[str, TaskID] = {}
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def report(step: str, done: float) -> None:
            if step not in steps:
                for earlier in steps.values():  # a step that ended early is over when the next one begins
                    bars.update(earlier, completed=1.0)
                steps[step] = bars.add_task(step, total=1.0)
            bars.update(steps[step], completed=done)

        yield report
        for task in steps.values():
            bars.update(task, completed=1.0)

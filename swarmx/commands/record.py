"""`swarmx log record`: send prompts or workflows to OpenAI-compatible servers and keep an execution log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from swarmx.logs.record import Recorder, Task

RECORD_EPILOG = """Examples:

swarmx log record --endpoint http://127.0.0.1:8000=a100 --endpoint http://127.0.0.1:8001=l4 --model m
--prompts p.jsonl --rate 2 --out log.parquet

swarmx log record --endpoint http://127.0.0.1:8000 --model m --workflows agents.py --count 200 --concurrency 8
--out log.parquet

A line of the prompt file: {"prompt": "Hello", "type": "chat", "tenant": "a", "priority": "high", "max_tokens": 64}
"""


def record_(
    endpoint: Annotated[
        list[str],
        typer.Option(help="URL[=DEVICE[*WEIGHT]]; repeat it. WEIGHT: share of calls under random.", show_default=False),
    ],
    model: Annotated[str, typer.Option(help="Model name in the requests.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Log to write (Parquet).", show_default=False)],
    prompts: Annotated[Path | None, typer.Option(help="JSONL file, a call per line.", show_default=False)] = None,
    workflows: Annotated[
        Path | None, typer.Option(help="Python file that defines workflow(number); it is run.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many workflows to take from --workflows.")] = 100,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: Poisson arrivals a second.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Closed loop: so many at once.", show_default="1")
    ] = None,
    policy: Annotated[Literal["random", "round_robin"], typer.Option(help="Which endpoint gets a call.")] = "random",
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature.", show_default="the server's")
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds until a call is given up.")] = 600.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="SWARMX_API_KEY", help="Sent as bearer token to every endpoint.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals, endpoints and sampling.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a log that exists.")] = False,
) -> None:
    """Record an execution log from real servers: one row per call, first token and end timed.

    Calls are written to a journal beside the log as they end. A recording that was stopped goes on when the same
    command runs again.
    """
    from swarmx.errors import BadInput
    from swarmx.files import check_file
    from swarmx.logs.record_run import prompt_tasks, workflow_tasks
    from swarmx.logs.record_stream import parse_endpoint

    if (prompts is None) == (workflows is None):
        raise BadInput("swarmx log record needs either --prompts FILE or --workflows FILE")
    if rate is not None and (concurrency is not None or not 0 < rate < float("inf")):
        raise BadInput("give --rate, a number above 0, or --concurrency, not both")
    if not 0 < timeout_s < float("inf"):
        raise BadInput(f"--timeout is {timeout_s}, but must be a number of seconds above 0")
    check_file(out)
    journal = out.with_name(out.name + ".journal.jsonl")
    if out.exists() and not journal.exists() and not overwrite:
        raise BadInput(f"{out} exists already; choose another --out, or --overwrite")
    endpoints = [parse_endpoint(text) for text in endpoint]
    tasks = prompt_tasks(prompts) if prompts else workflow_tasks(workflows, count)  # type: ignore[arg-type]
    sampling: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    load = (None, rate) if rate is not None else (concurrency or 1, 0.0)
    options = {"dispatch": policy, "sampling": sampling, "seed": seed, "timeout_s": timeout_s, "api_key": api_key}
    try:
        asyncio.run(_record(endpoints, model, journal, tasks, load, options))
    except KeyboardInterrupt:
        typer.echo(f"stopped; {journal} keeps what was recorded: run the same command to go on", err=True)
        raise typer.Exit(1) from None
    _finalise(journal, out, {"source": "swarmx log record", "endpoints": ", ".join(endpoint), "seed": str(seed)})


async def _record(
    endpoints: Sequence[Any],
    model: str,
    journal_path: Path,
    tasks: Sequence[Task],
    load: tuple[int | None, float],
    options: dict[str, Any],
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from swarmx.logs.record import Recorder
    from swarmx.logs.record_journal import Journal
    from swarmx.logs.record_run import closed_loop, open_loop

    concurrency, rate = load
    columns = (TextColumn("recording"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Journal(journal_path) as journal, Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        async with Recorder(endpoints, journal, model, **options) as recorder:

            def report() -> None:
                progress.update(bar, advance=1, description=_speed(recorder))

            if concurrency is None:
                await open_loop(recorder, tasks, rate, options["seed"], report)
            else:
                await closed_loop(recorder, tasks, concurrency, report)


def _speed(recorder: Recorder) -> str:
    per_s = recorder.output_tokens / max(recorder.clock(), 1e-9)
    return f"workflows, {recorder.calls} calls, {per_s:.1f} output tokens/s"


def _finalise(journal: Path, out: Path, about: dict[str, str]) -> None:
    from collections import Counter

    from swarmx.logs.record_journal import complete, read_journal
    from swarmx.logs.table import write_log

    records, ends = read_journal(journal)
    write_log(complete(records, ends), out, about)
    journal.unlink()
    failed = sum(reason is not None for reason in ends.values())
    states = ", ".join(f"{n} {status}" for status, n in Counter(record.status for record in records).most_common())
    typer.echo(
        f"{out}: {len(records)} calls ({states}) in {len(ends)} workflows, {failed} of them cut short by an error"
    )
    typer.echo(f"next: swarmx log describe {out}")

"""`swarmx evaluate`, `swarmx demo`, `swarmx policies`: what a cluster would gain, before anything is switched on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swarmx.sim.report import Report

AsJson = Annotated[bool, typer.Option("--json", help="Print report.json and nothing else.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for report.json, report.html and what is kept in between.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Paired seeds; default: 8, with --quick 4.", show_default=False)]
DemoSeeds = Annotated[int | None, typer.Option(min=1, help="Paired seeds; default: 8.", show_default=False)]

SuiteNames = Annotated[
    str | None,
    typer.Option(help="Suites, separated by commas; default: headline, with --log real_log.", show_default=False),
]
LogPath = Annotated[
    Path | None,
    typer.Option(
        help="Execution log (a file or a directory) to train and evaluate on; default: the shipped one.",
        show_default=False,
    ),
]
ModelPath = Annotated[
    Path | None,
    typer.Option(help="Model that was trained on this log; default: train one.", show_default=False),
]
PolicyNames = Annotated[
    str | None,
    typer.Option(help="Policies, separated by commas; references always run as well.", show_default=False),
]


def evaluate(
    suite: SuiteNames = None,
    log: LogPath = None,
    model: ModelPath = None,
    policy: PolicyNames = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer, shorter runs: minutes become seconds.")] = False,
    seeds: Seeds = None,
    out: Out = Path("out"),
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one per core.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a log's workflows through competing policies and report P50, P95 and P99.

    A run that was stopped goes on where it was. The last line says what this cluster would gain over the best policy
    that predicts nothing, or that there is nothing to gain.
    """
    from swarmx.commands.evaluation_run import Request, run

    names = tuple((suite or ("real_log" if log else "headline")).split(","))
    policies = tuple(policy.split(",")) if policy else None
    request = Request(names, log, model, policies, quick, seeds, out, processes, as_json)
    _show(run(request), out, as_json)


def demo(out: Out = Path("out"), seeds: DemoSeeds = None, as_json: AsJson = False) -> None:
    """Train on the shipped log, evaluate every policy on it, and write a report to look at."""
    from swarmx.commands.evaluation_run import Request, run

    began = time.monotonic()
    request = Request(("headline", "real_log"), quick=True, demo=True, seeds=seeds, out=out, quiet=as_json)
    _show(run(request), out, as_json)
    if not as_json:
        typer.echo(f"({time.monotonic() - began:.0f} s)", err=True)


def policies(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every registry: presets, orders, placements, suites, log formats, one line each."""
    from swarmx.commands.registries import print_registries

    print_registries(as_json)


def _show(report: Report, out: Path, as_json: bool) -> None:
    from rich.console import Console

    from swarmx.sim import report_text as text

    if as_json:
        typer.echo((out / "report.json").read_text(encoding="utf-8"), nl=False)
        return
    console = Console()
    for suite, regime in text.groups(report):
        console.print(text.table(report, suite, regime, console.width))
    console.print(f"report: {out / 'report.html'}", highlight=False)
    console.print(f"[bold]{text.verdict(report)}[/bold]", highlight=False)

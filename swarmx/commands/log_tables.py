"""What `swarmx log` prints: rich tables of imports, descriptions and checks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swarmx.logs import IMPORTERS
from swarmx.logs.check import Check
from swarmx.logs.describe import Description, Shape, Spread, Window
from swarmx.logs.importing import Imported
from swarmx.logs.uses import Use

SHOWN = 12  # names of one kind; the rest is summed in one line
MARKS = {"ok": "[green]ok[/]", "failed": "[red]failed[/]", "skipped": "[dim]skipped[/]"}


def print_formats(as_json: bool) -> None:
    """Every importer, one line each."""
    if as_json:
        print(json.dumps({name: {"description": i.description, "caveat": i.caveat} for name, i in IMPORTERS.items()}))
        return
    table = _table("format", "reads", "what such a log cannot show")
    for name, importer in IMPORTERS.items():
        table.add_row(name, importer.description, importer.caveat)
    Console().print(table)


def print_imported(imported: Imported, out: Path, as_json: bool) -> None:
    """How many calls went where, and what to know of them."""
    calls = len(imported.records)
    workflows = len({r.workflow_id or r.call_id for r in imported.records})
    if as_json:
        print(json.dumps({"log": str(out), "calls": calls, "workflows": workflows, "about": dict(imported.about)}))
        return
    console = Console()
    console.print(f"{out}: {calls} calls in {workflows} workflows", markup=False, highlight=False)
    for name, text in imported.about.items():
        if name in ("caveat", "tokens", "origin_s"):
            console.print(f"  {name}: {text}", markup=False, highlight=False)
    console.print(f"next: swarmx log check {out}", markup=False, highlight=False)


def print_checks(checks: Sequence[Check]) -> None:
    """One line per check, however narrow the terminal."""
    console = Console(highlight=False)
    for check in checks:
        gap = " " * (8 - len(check.outcome))
        console.print(f"{MARKS[check.outcome]}{gap}{check.name}: {escape(check.detail)}", soft_wrap=True)


def print_description(description: Description, about: Mapping[str, str], log: Path) -> None:
    """Every part of a description as a table."""
    console = Console()
    console.print(
        f"{log}: {description.calls} calls in {description.workflows} workflows over {description.seconds:.1f} s",
        markup=False,
        highlight=False,
    )
    for name, text in about.items():
        console.print(f"  {name}: {text}", markup=False, highlight=False, style="dim")
    console.print(_spreads(description))
    console.print(_names(description))
    console.print(_load(description.load))
    console.print(_shape(description.shape))
    console.print(_missing(description.missing))
    console.print(_uses(description.uses))


def _spreads(d: Description) -> Table:
    table = _table("ok calls", "n", "mean", "CV", "P50", "P90", "P95", "P99", "max", title="Lengths and times")
    named = {"output tokens": d.output_tokens, "latency, s": d.latency_s, "first token, s": d.first_token_s}
    for field, groups in d.tokens_by.items():
        if len(groups) > 1:
            named |= {f"  tokens, {field} {name or '(none)'}": s for name, s in list(groups.items())[:SHOWN]}
            if len(groups) > SHOWN:
                named[f"  ({len(groups) - SHOWN} more of {field})"] = None
    for name, spread in named.items():
        table.add_row(escape(name), *_numbers(spread))
    cut = "no call has a max_tokens" if d.cut_at_cap is None else f"{d.cut_at_cap:.1%} of ok calls"
    table.caption = f"cut at max_tokens: {cut}"
    return table


def _names(d: Description) -> Table:
    table = _table("field", "values", "most frequent (calls)", title="Names")
    for field, counts in d.names.items():
        shown = ", ".join(f"{name or '(none)'} ({n})" for name, n in list(counts.items())[:SHOWN])
        more = f", {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
        table.add_row(field, str(len(counts) - ("" in counts)), escape(shown + more))
    return table


def _load(windows: Iterable[Window]) -> Table:
    table = _table("from, s", "calls", "arrivals per s", "mean in flight", title="Load over time")
    for w in windows:
        in_flight = "unknown" if w.in_flight is None else f"{w.in_flight:.2f}"
        table.add_row(f"{w.start_s:.1f}", str(w.calls), f"{w.rate:.3g}", in_flight)
    return table


def _shape(shape: Shape) -> Table:
    table = _table("per workflow", "n", "mean", "CV", "P50", "P90", "P95", "P99", "max", title="Workflows")
    if shape.problem:
        table.caption = escape(shape.problem)
        return table
    table.add_row("calls", *_numbers(shape.calls))
    table.add_row("tool time, s", *_numbers(shape.tool_s))
    table.caption = (
        f"fan-out in {shape.branching:.1%} of workflows, widest {shape.widest}; merges in {shape.merging:.1%}"
    )
    return table


def _missing(missing: Mapping[str, float]) -> Table:
    table = _table("share of calls without it", "fields", title="Missing")
    shares: dict[str, list[str]] = {}
    for name, share in sorted(missing.items(), key=lambda m: m[1]):
        shares.setdefault(f"{share:.0%}", []).append(name)
    for label, names in shares.items():
        table.add_row(label, ", ".join(names))
    return table


def _uses(uses: Iterable[Use]) -> Table:
    table = _table("", "use", "because", title="What it can be used for")
    for use in uses:
        table.add_row("[green]yes[/]" if use.possible else "[yellow]no[/]", use.purpose, escape(use.why))
    return table


def _numbers(spread: Spread | None) -> list[str]:
    if spread is None:
        return ["0"]
    return [str(spread.n), *(f"{v:.4g}" for v in list(asdict(spread).values())[1:])]


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        numeric = place > 0 and column in ("n", "mean", "CV", "P50", "P90", "P95", "P99", "max", "calls")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    return table

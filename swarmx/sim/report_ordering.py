"""What a report says of the suites of disciplines: each paper's figure beside ours, and every policy's own figures."""

from __future__ import annotations

import html

from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarmx.sim import report_page as page
from swarmx.sim.report import Report, Row
from swarmx.sim.suites.ordering import Claim
from swarmx.sim.suites.ordering_suites import ORDERING

PREFIX = "ordering_"
MOST = 5  # figures beside each other in a terminal of 80 columns
CLAIMS = {suite.name: suite.shown for suite in ORDERING}


def sentences(report: Report, suite: str) -> list[str]:
    """One line per claim: what was claimed, what this report has."""
    rows = {(r.policy, r.load): r for r in report.rows if r.suite == suite and r.level == "workflow"}
    out = []
    for claim in CLAIMS.get(suite, ()):
        found = ours(claim, rows)
        if found is not None:
            told = f"{claim.claimed}; " if claim.claimed else ""
            out.append(f"{suite.removeprefix(PREFIX)}: {claim.about}: {told}here {found:.3g}")
    return out


def ours(claim: Claim, rows: dict[tuple[str, float], Row]) -> float | None:
    """The claim's figure in these rows, by policy and load; None where the report lacks one of them."""
    mine = rows.get((claim.policy, claim.load))
    if mine is None or claim.figure not in mine.extra:
        return None
    if claim.over is None:
        return mine.extra[claim.figure]
    theirs = rows.get((claim.over, claim.load))
    base = None if theirs is None else theirs.extra.get(claim.figure)
    return mine.extra[claim.figure] / base if base else None


def figures(report: Report, suite: str, regime: str) -> tuple[list[str], list[tuple[str, float, list[str]]]]:
    """(names of the figures that the suite's claims speak of, (policy, load, those figures) of every row by load);
    report.json has all of them."""
    rows = [r for r in report.rows if (r.suite, r.regime, r.level) == (suite, regime, "workflow")]
    known = {name for row in rows for name in row.extra}
    spoken = (*(claim.figure for claim in CLAIMS.get(suite, ())), "mean_s", "p99_s")
    names = [name for name in dict.fromkeys(spoken) if name in known][:MOST]
    out = []
    for row in sorted(rows, key=lambda r: r.load):
        out.append((row.policy, row.load, [_short(row.extra[name]) if name in row.extra else "" for name in names]))
    return [name.replace("_", " ") for name in names], out


def table(report: Report, suite: str, regime: str) -> Table:
    """The figures as a table for the terminal."""
    names, rows = figures(report, suite, regime)
    title = f"{suite}, {regime}: {len(report.meta.seeds)} seeds"
    out = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    out.add_column("policy", no_wrap=True)
    out.add_column("load", justify="right")
    for i, name in enumerate(names):
        words = (*name.split(), *(cells[i] for _, _, cells in rows))
        out.add_column(name, justify="right", width=max(map(len, words)))
    for policy, load, cells in rows:
        out.add_row(policy, f"{load:g}", *cells, style="bold" if policy == "late" else None)
    return out


def head(report: Report) -> str:
    """The page's heading where it shows these suites alone."""
    told = [line for suite in dict.fromkeys(row.suite for row in report.rows) for line in sentences(report, suite)]
    first = told[0] if told else "Disciplines side by side."
    seeds = f"{len(report.meta.seeds)} paired seeds"
    return f'<header><p class="eyebrow">swarmx evaluation · order · {seeds}</p><h1>{html.escape(first)}</h1></header>'


def section(report: Report) -> str:
    """A part of the page with every claim's sentence and the figures; empty where no such suite was run."""
    groups = dict.fromkeys((row.suite, row.regime) for row in report.rows if row.suite.startswith(PREFIX))
    if not groups:
        return ""
    said = [line for suite in dict.fromkeys(suite for suite, _ in groups) for line in sentences(report, suite)]
    told = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    tables = "".join(
        page.figure(f"{suite} · {regime}", _html(*figures(report, suite, regime))) for suite, regime in groups
    )
    note = "What was claimed of each mechanism, and what it does here: not the papers' systems, models and traces."
    return page.section("Whose work runs next", note, f"<ul>{told}</ul>{tables}")


def _html(names: list[str], rows: list[tuple[str, float, list[str]]]) -> str:
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    head = f'<tr><th class="text">policy</th><th>load</th>{heads}</tr>'
    body = ""
    for policy, load, cells in rows:
        kind = ' class="late"' if policy == "late" else ""
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        body += f'<tr{kind}><td class="text">{html.escape(policy)}</td><td>{load:g}</td>{numbers}</tr>'
    return page.table(head, body)


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}"[:5] if abs(value) >= 0.001 else f"{value:.2g}"

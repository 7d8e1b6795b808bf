"""What a report says of the suites of disciplines: each paper's figure beside ours, and every policy's own figures."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarmx.sim.report import Report, Row
from swarmx.sim.suites.ordering import Claim
from swarmx.sim.suites.ordering_suites import ORDERING

PREFIX = "ordering_"
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


def table(report: Report, suite: str, regime: str) -> Table:
    """All figures of the suite's own, at every load."""
    rows = [r for r in report.rows if (r.suite, r.regime, r.level) == (suite, regime, "workflow")]
    names = list(dict.fromkeys(name for row in rows for name in row.extra if not name.startswith("tenant/")))
    title = f"{suite}, {regime}: {len(report.meta.seeds)} seeds"
    out = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    out.add_column("policy")
    out.add_column("load", justify="right")
    for name in names:
        out.add_column(name.replace("_", " "), justify="right")
    for row in sorted(rows, key=lambda r: r.load):
        cells = [f"{row.extra[name]:.3g}" if name in row.extra else "" for name in names]
        out.add_row(row.policy, f"{row.load:g}", *cells, style="bold" if row.policy == "late" else None)
    return out

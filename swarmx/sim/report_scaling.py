"""What a report says of scalers: the replicas that each took beside its latency, in words and in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarmx.sim.report import Figures, Report, Row
from swarmx.sim.suites.equal_cost import OURS, OURS_ARM, family

PREFIX = "scaling_"
RIVALS = ("hpa", "queue_length", "keda_latency", "kpa", "throughput_and_load", "cilantro", "murakkab")
BOUND = "clairvoyant"  # knows the future; nobody can run it
HEADS = ("P50", "P95", "P99", "calls in SLO", "replicas", "price", "flaps", f"{OURS}\nat equal P95", "at equal\nSLO")
SHORT = ("P50", "P95", "P99", "in SLO", "repl.", "price", "flaps", "ours", "")
WIDE = 112  # columns of a terminal that all of HEADS fit into
WORTH = 0.03  # differences below this share of the replica-seconds are called none


@dataclass(frozen=True, slots=True)
class Saving:
    """Our replica-seconds over a rival's where we are as good as it is as it comes.

    quality : "p95" of workflows, or "attainment" of calls; low, high : 95 % interval, None where there is no end
    is_limit : even our cheapest setting is better than the rival, so that the ratio is an upper limit
    """

    quality: str
    ratio: float
    low: float | None
    high: float | None
    is_limit: bool

    @property
    def is_real(self) -> bool:
        return self.ratio <= 1 - WORTH and self.high is not None and self.high < 1

    @property
    def is_loss(self) -> bool:
        return not self.is_limit and self.ratio >= 1 + WORTH and self.low is not None and self.low > 1

    @property
    def is_nothing(self) -> bool:
        return abs(self.ratio - 1) < WORTH and self.high is not None

    @property
    def figure(self) -> str:
        """As it stands in tables: ratio and interval."""
        told = f"{'≤ ' if self.is_limit else ''}{self.ratio:.2f}"
        if self.low is None and self.high is None:
            return told
        low, high = ("–" if end is None else f"{end:.2f}" for end in (self.low, self.high))
        return f"{told} [{low}, {high}]"


def parted(report: Report, prefix: str = PREFIX) -> tuple[Report, Report]:
    """(the report without its suites of that prefix, the report of them alone)."""

    def only(wanted: bool) -> Report:
        rows = [row for row in report.rows if row.suite.startswith(prefix) == wanted]
        curves = [curve for curve in report.figures.curves if curve.suite.startswith(prefix) == wanted]
        figures = Figures(curves) if wanted else replace(report.figures, curves=curves)
        return Report(report.meta, rows, figures)

    return only(False), only(True)


def regimes(report: Report) -> list[tuple[str, str]]:
    """(suite, regime) of every scaling suite, in the order of the rows."""
    return list(dict.fromkeys((r.suite, r.regime) for r in report.rows if r.suite.startswith(PREFIX)))


def rows_of(report: Report, suite: str, regime: str, level: str = "workflow") -> list[Row]:
    return [r for r in report.rows if (r.suite, r.regime, r.level) == (suite, regime, level)]


def saving(row: Row, quality: str) -> Saving | None:
    """What the row says about our cost at its quality; None where our curve does not reach it."""
    name = f"{OURS}_at_equal_{quality}_"
    ratio = row.extra.get(name + "ratio")
    if ratio is None:
        return None
    low, high = row.extra.get(name + "low"), row.extra.get(name + "high")
    return Saving(quality, ratio, low, high, row.extra.get(name + "limit", 0.0) > 0)


def sentences(report: Report, suite: str) -> list[str]:
    """For every regime of a suite: what our replica-seconds are against each of the usual rivals."""
    out = []
    for name, regime in regimes(report):
        if name == suite:
            out += _sentences(regime, rows_of(report, suite, regime), len(report.meta.seeds))
    return out


def _sentences(regime: str, rows: Sequence[Row], seeds: int) -> list[str]:
    """At equal workflow P95; where no setting of ours reaches a rival's, at equal attainment of calls."""
    parts: dict[str, list[str]] = {"saves": [], "nothing": [], "loses": [], "unclear": [], "short": []}
    for row in rows:
        if row.policy not in RIVALS[:3]:
            continue
        found = saving(row, "p95") or saving(row, "attainment")
        if found is None:
            parts["short"].append(row.policy)
            continue
        where = "workflow P95" if found.quality == "p95" else "attainment"
        kind = "saves" if found.is_real else "loses" if found.is_loss else "nothing" if found.is_nothing else "unclear"
        parts[kind].append(f"{found.figure} of {row.policy}'s at equal {where}")
    told = {
        "saves": "needs fewer replica-seconds, {}",
        "nothing": "gains nothing, {}",
        "loses": "needs more replica-seconds, {}",
        "unclear": "may gain or not, more seeds will tell, {}",
        "short": "is at no setting tried as good as {}",
    }
    lines = [told[k].format(", ".join(v)) for k, v in parts.items() if v]
    return [f"On {regime}, {OURS} {'; it '.join(lines)} (95 % intervals, {seeds} seeds)."] if lines else []


def table(report: Report, suite: str, regime: str, width: int = 120) -> Table:
    """Policies as they come, cheapest first. Our curve at other settings is in report.html.

    width : columns of the terminal; below `WIDE` one column tells what we cost, and the price only where it differs
    """
    rows = sorted(rows_of(report, suite, regime), key=price_rate)
    calls = {label(row): row for row in rows_of(report, suite, regime, "call")}
    shown = list(range(len(HEADS))) if width >= WIDE else _narrow(rows)
    told = "" if width >= WIDE else f"\nours: {OURS}'s replica-seconds over the row's at equal P95, * at equal SLO"
    title = f"{suite}, {regime}: workflow seconds; replicas from order to end{told}"
    out = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    out.add_column("policy", no_wrap=True)
    for place in shown:
        out.add_column(HEADS[place] if width >= WIDE else SHORT[place], justify="right", no_wrap=True)
    for row in rows:
        if row.policy == family(row.policy):
            style = "bold" if row.policy == OURS else "dim" if row.policy == BOUND else None
            cells = cells_of(row, calls.get(label(row)))
            if width < WIDE:
                cells = _brief(cells, row)
            out.add_row(label(row), *(cells[place] for place in shown), style=style)
    return out


def _brief(cells: list[str], row: Row) -> list[str]:
    """The same in fewer characters."""
    saved = cells[-2] or (f"{cells[-1]}*" if cells[-1] else "")
    replicas = HEADS.index("replicas")
    cells[replicas : replicas + 2] = f"{row.mean_replicas or 0.0:.1f}", f"{price_rate(row):.1f}"
    return [*cells[:-2], saved.replace("≤ ", "≤").replace(", ", ","), ""]


def _narrow(rows: Sequence[Row]) -> list[int]:
    """Places of the columns that fit into 80 characters: one of the two savings, the price where it says something."""
    same = all(f"{price_rate(row):.2f}" == f"{row.mean_replicas or 0.0:.2f}" for row in rows)
    left_out = {len(HEADS) - 1, HEADS.index("price") if same else HEADS.index("P50")}
    return [place for place in range(len(HEADS)) if place not in left_out]


def markdown(report: Report) -> str:
    """The same tables for a document, policies as they come; empty without a scaling suite."""
    lines = []
    for suite, regime in regimes(report):
        calls = {label(row): row for row in rows_of(report, suite, regime, "call")}
        lines += [f"{suite}, {regime}, {len(report.meta.seeds)} paired seeds; `{report.meta.command}`:", ""]
        lines += [f"| policy | {' | '.join(HEADS)} |".replace("\n", " "), "|---" + "|--:" * len(HEADS) + "|"]
        for row in sorted(rows_of(report, suite, regime), key=price_rate):
            if row.policy == family(row.policy):
                lines.append(f"| {label(row)} | {' | '.join(cells_of(row, calls.get(label(row))))} |")
        lines.append("")
    return "\n".join(lines)


def cells_of(row: Row, call: Row | None) -> list[str]:
    """Figures of one row, in the order of the table's columns."""
    kept = None if call is None else call.slo_attainment
    cells = [f"{s:.3g}" if s < 1000 else f"{s:.0f}" for s in (row.p50_s, row.p95_s, row.p99_s)]
    cells += ["" if kept is None else f"{kept * 100:.1f} %"]
    cells += ["" if row.mean_replicas is None else f"{row.mean_replicas:.2f}", f"{price_rate(row):.2f}", str(row.flaps)]
    savings = (saving(row, quality) for quality in ("p95", "attainment"))
    return cells + ["" if one is None else one.figure for one in savings]


def label(row: Row) -> str:
    """The policy as people write it, with its forecasts where they are not type averages."""
    other = family(row.policy) == OURS and row.arm not in (OURS_ARM, None)
    return row.policy.replace("_", " ") + (f", {row.arm}" if other else "")


def price_rate(row: Row) -> float:
    """Mean replicas, each counted at its price."""
    price = row.extra.get("cost", row.replica_seconds or 0.0) / (row.replica_seconds or 1.0)
    return (row.mean_replicas or 0.0) * price

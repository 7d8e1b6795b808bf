"""The part of report.html about scalers: per regime a picture of quality against replicas, and a table."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from math import ceil, floor, log10

from swarmx.sim import report_scaling as scaling
from swarmx.sim.report import Report, Row
from swarmx.sim.report_page import STYLE, figure, pair, section, table
from swarmx.sim.report_plots import Axis, Series, lines, log_axis
from swarmx.sim.suites.equal_cost import OURS, OURS_ARM, family

NOTE = (
    "Every policy at its settings, joined from cheap to dear. Further left is cheaper; calls in their limits should "
    "be high, the workflow P95 low. Replicas count from their order to their end."
)
SIZE = (560, 360)
FAR = 6.0  # a policy whose every workflow P95 is above so many times the best would leave no room for the others
SHORT = {"throughput_and_load": "throughput, load"}


def head(report: Report) -> str:
    """The page's heading where it shows scalers alone."""
    suites = dict.fromkeys(suite for suite, _ in scaling.regimes(report))
    told = [sentence for suite in suites for sentence in scaling.sentences(report, suite)]
    first = told[0] if told else "Scalers side by side."
    seeds = f"{len(report.meta.seeds)} paired seeds"
    return f'<header><p class="eyebrow">swarmx evaluation · scaling · {seeds}</p><h1>{html.escape(first)}</h1></header>'


def frontiers(report: Report) -> str:
    """One section per suite; empty when the report holds none."""
    out = []
    about = report.meta.definitions
    for suite in dict.fromkeys(suite for suite, _ in scaling.regimes(report)):
        told = "".join(f"<li>{html.escape(one)}</li>" for one in scaling.sentences(report, suite))
        parts = [_regime(report, suite, regime) for name, regime in scaling.regimes(report) if name == suite]
        note = f"{about.get(f'suite {suite}', suite)}. {NOTE}"
        out.append(section(f"Scaling: {suite.removeprefix(scaling.PREFIX)}", note, f"<ul>{told}</ul>" + "".join(parts)))
    return "\n".join(out)


def _regime(report: Report, suite: str, regime: str) -> str:
    rows = scaling.rows_of(report, suite, regime)
    calls = {scaling.label(row): row for row in scaling.rows_of(report, suite, regime, "call")}
    near, far = near_rows(rows)
    note = f", without {' and '.join(name.replace('_', ' ') for name in far)}" if far else ""

    def attainment(row: Row) -> float:
        return (calls[scaling.label(row)].slo_attainment or 0.0) * 100

    kept = picture(near, attainment, "calls within their limits, %")
    late = picture(near, lambda row: row.p95_s, "workflow P95", log=True)
    pictures = pair([figure(f"{regime}: attainment{note}", kept), figure(f"{regime}: workflow P95{note}", late)])
    return pictures + _table(
        rows, {scaling.label(row): scaling.cells_of(row, calls.get(scaling.label(row))) for row in rows}
    )


def drawing(report: Report) -> str:
    """The pictures of every regime as one SVG that stands alone. Raises ValueError without a scaling suite."""
    blocks = []
    for suite, regime in scaling.regimes(report):
        rows, _ = near_rows(scaling.rows_of(report, suite, regime))
        calls = {scaling.label(row): row for row in scaling.rows_of(report, suite, regime, "call")}
        kept = {name: (call.slo_attainment or 0.0) * 100 for name, call in calls.items()}
        pair_ = (
            picture(rows, lambda row, kept=kept: kept[scaling.label(row)], f"{regime}: calls within limits, %"),  # type: ignore[misc]
            picture(rows, lambda row: row.p95_s, f"{regime}: workflow P95", log=True),
        )
        blocks.append(pair_)
    if not blocks:
        raise ValueError("this report holds no scaling suite")
    width, height = SIZE
    inside = "".join(
        one.replace("<svg ", f'<svg x="{column * width}" y="{line * height}" width="{width}" height="{height}" ', 1)
        for line, both in enumerate(blocks)
        for column, one in enumerate(both)
    )
    box = f"0 0 {2 * width} {len(blocks) * height}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"><style>{STYLE}svg{{background:#fff}}</style>'
        f"{inside}</svg>\n"
    )


def near_rows(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """(rows of policies that come within `FAR` of the best workflow P95, names of the others)."""
    best: dict[str, float] = {}
    for row in rows:
        best[family(row.policy)] = min(row.p95_s, best.get(family(row.policy), row.p95_s))
    limit = FAR * min(best.values(), default=0.0)
    far = [name for name, p95 in best.items() if p95 > limit]
    return [row for row in rows if family(row.policy) not in far], far


def picture(rows: Sequence[Row], value: Callable[[Row], float], title: str, log: bool = False) -> str:
    """One line per policy over its settings, against mean replicas; a single setting is a dot."""
    families: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=scaling.price_rate):
        if family(row.policy) == OURS and row.arm not in (OURS_ARM, None):
            continue  # one curve for each policy; other forecasts stand in the table
        families.setdefault(family(row.policy), []).append((scaling.price_rate(row), value(row)))
    order = sorted(families, key=lambda name: (name == OURS, name))  # ours is drawn on top
    series = [Series(name, SHORT.get(name, name.replace("_", " ")), families[name]) for name in order]
    x = _linear("mean replicas at their price", [p for s in series for p, _ in s.points])
    values = [v for s in series for _, v in s.points]
    return lines(series, x, log_axis(title, values, " s") if log else _linear(title, values), SIZE)


def _linear(title: str, values: Sequence[float]) -> Axis:
    """Some five ticks at round numbers."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 1.0
    rough = (high - low or 1.0) / 5
    step = min((m * 10 ** floor(log10(rough)) for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    ticks = [i * step for i in range(ceil((low - room) / step), floor((high + room) / step) + 1)]
    return Axis(title, low - room, high + room, [(v, f"{v:.4g}") for v in ticks])


def _table(rows: Sequence[Row], cells: dict[str, list[str]]) -> str:
    heads = ("P50", "P95", "P99", "calls in SLO", "replicas", "price", "flaps", "equal P95", "equal SLO")
    over = (
        f'<tr class="over"><th></th><th colspan="3">workflow, seconds</th><th colspan="4"></th>'
        f"<th colspan=\"2\">{OURS.replace('_', ' ')}'s replica-seconds over the row's at</th></tr>"
    )
    body = ""
    for row in sorted(rows, key=scaling.price_rate):
        kind = "late" if row.policy == OURS else "bound" if row.policy == scaling.BOUND else ""
        dot = f'<span class="dot p-{family(row.policy)}"></span>'
        name = html.escape(scaling.label(row))
        inside = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[scaling.label(row)])
        body += f'<tr class="{kind}"><td data-p="{family(row.policy)}">{dot}{name}</td>{inside}</tr>'
    return table(over + "<tr><th>policy</th>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>", body)

"""report.html from a report: one file that needs nothing else, readable in light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from swarmx.files import replacing
from swarmx.sim import report_ordering as ordering
from swarmx.sim import report_text as text
from swarmx.sim.report import Curve, Ratio, Report, Row
from swarmx.sim.report_evidence import about, arms, fidelity, predictor, without_gain
from swarmx.sim.report_frontier import frontiers, head
from swarmx.sim.report_page import figure, page, pair, section, table
from swarmx.sim.report_plots import Axis, Series, lines, log_axis, stacked, tail_axis
from swarmx.sim.report_scaling import parted

PARTS = ("queue", "prefill", "decode", "tool")
PLOTTED = ("round_robin", "power_of_two", text.LED, "central_fcfs", "murakkab", "least_expected", "swarmx",
           "push", "clairvoyant", "late")  # fmt: skip  # the last is drawn on top


def write_html(report: Report, path: Path) -> None:
    """Write report.html beside report.json."""
    with replacing(path) as temporary:
        temporary.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The page as text; the same report gives the same bytes."""
    routed, scaled = parted(report)
    routed, ordered = parted(routed, ordering.PREFIX)
    if routed.rows or not report.rows:
        sections = _routed(routed)
    else:
        sections = [ordering.head(ordered) if ordered.rows else head(scaled)]
    sections += [ordering.section(ordered), frontiers(scaled)]
    return page("swarmx evaluation", "\n".join(part for part in (*sections, about(report)) if part))


def _routed(report: Report) -> list[str]:
    return [
        _head(report), _against_load(report), _closer(report), arms(report), predictor(report),
        fidelity(report), without_gain(report),
    ]  # fmt: skip


def _head(report: Report) -> str:
    first = text.headline(report)[0]
    data = report.meta.data.get("name", "")
    cards = "".join(
        _card(one)
        for suite, regime in text.groups(report)
        if (one := text.gain(report, suite, regime, text.main_load(report, suite, regime)))
    )
    seeds = f"{len(report.meta.seeds)} paired seeds"
    return (
        f'<header><p class="eyebrow">swarmx evaluation · {html.escape(str(data))} · {seeds}</p>'
        f"<h1>{_bold_percent(first)}</h1>"
        '<p class="note">Each card: change of workflow P99 against the best policy that predicts nothing, '
        f'whichever that is there. Below zero is better.</p><div class="cards">{cards}</div></header>'
    )


def _bold_percent(sentence: str) -> str:
    words = html.escape(sentence).split(" ")
    for i, word in enumerate(words[:-1]):
        if word.isdigit() and words[i + 1] == "%":
            return " ".join([*words[:i], f"<b>{word} %</b>", *words[i + 2 :]])
    return " ".join(words)


def _card(one: text.Gain) -> str:
    mood, big = "flat", "unclear" if one.is_undecided else "no gain"
    if one.is_real or one.is_loss:
        mood, big = (
            ("good" if one.is_real else "bad"),
            f"{(one.ratio.p99 - 1) * 100:+.0f} %".replace("-", "−"),
        )
    between = one.ratio.percent().replace("-", "−")
    return (
        f'<div class="card"><div class="suite">{html.escape(one.suite)}</div>'
        f'<div class="where">{html.escape(one.regime)} · load {one.load:g}'
        f'</div><div class="big {mood}">{big}</div><div class="more">{text.name_of(one.policy)} '
        f"({one.arm or 'no predictions'}) against {text.name_of(one.against)}<br>{between}</div></div>"
    )


def _against_load(report: Report) -> str:
    figures = []
    for suite, regime in text.groups(report):
        every = text.loads(report, suite, regime)
        if len(every) < 2:
            continue
        series = _series(
            (row.policy, row.load, row.p99_s) for load in every for row in text.rows_at(report, suite, regime, load)
        )
        y = log_axis("workflow P99", [p for s in series for _, p in s.points], " s")
        x = Axis("load (offered work / capacity)", every[0], every[-1], [(load, f"{load:g}") for load in every])
        figures.append(figure(f"{suite} · {regime}", lines(series, x, y)))
    note = (
        "P99 of whole workflows, each policy with its default predictions. Point at a line to follow the "
        "policy through every plot."
    )
    return section("The slowest workflows, from idle to busy", note, pair(figures)) if figures else ""


def _series(points: Iterable[tuple[str, float, float]]) -> list[Series]:
    by_policy: dict[str, list[tuple[float, float]]] = {}
    for policy, x, y in points:
        by_policy.setdefault(policy, []).append((x, y))
    drawn = [name for name in PLOTTED if len(by_policy.get(name, ())) > 1]
    return [Series(name, text.name_of(name), by_policy[name]) for name in drawn]


def _closer(report: Report) -> str:
    groups = text.groups(report)
    loads = sorted({row.load for row in report.rows})
    first = text.main_load(report, *groups[0])
    panels = "".join(
        _panel(report, suite, regime, load) for suite, regime in groups for load in text.loads(report, suite, regime)
    )
    tabs = _tabs("group", [f"{s} · {r}" for s, r in groups], f"{groups[0][0]} · {groups[0][1]}")
    tabs += _tabs("load", [f"{load:g}" for load in loads], f"{first:g}", "load ")
    return section("One regime, one load", "", f'<div class="tabs">{tabs}</div>{panels}')


def _tabs(axis: str, values: Sequence[str], first: str, prefix: str = "") -> str:
    buttons = "".join(
        f'<button data-axis="{axis}" data-value="{html.escape(v)}"{" data-first" if v == first else ""}>'
        f"{prefix}{html.escape(v)}</button>"
        for v in values
    )
    return f"<div>{buttons}</div>"


def _panel(report: Report, suite: str, regime: str, load: float) -> str:
    rows = text.rows_at(report, suite, regime, load)
    calls = {row.policy: row for row in text.rows_at(report, suite, regime, load, "call")}
    shown = {(row.policy, row.arm) for row in rows}
    here = (suite, regime, load)
    curves = [c for c in report.figures.curves if (c.suite, c.regime, c.load) == here and (c.policy, c.arm) in shown]
    plots = _cdf(curves, rows[0].n / len(report.meta.seeds)) + _where(curves) if curves else ""
    key = html.escape(f"{suite} · {regime}|{load:g}")
    return f'<div data-panel="{key}">{_table(report, rows, calls)}{plots}</div>'


def _table(report: Report, rows: Sequence[Row], calls: dict[str, Row]) -> str:
    over = (("", 1), ("", 1), ("workflow, seconds", 3), ("workflow P99 relative to", 2), ("call, seconds", 3))
    above = "".join(f'<th colspan="{wide}">{words}</th>' for words, wide in (*over, ("workflows", 2)))
    heads = ("P50", "P95", "P99", "LED", "round robin", "P50", "P95", "P99", "in SLO", "max load")
    below = '<th>policy</th><th class="text">predictions</th>' + "".join(f"<th>{h}</th>" for h in heads)
    body = "".join(
        _table_row(row, calls.get(row.policy), text.max_load(report, row))
        for row in sorted(rows, key=lambda row: row.p99_s)
    )
    return table(f'<tr class="over">{above}</tr><tr>{below}</tr>', body)


def _table_row(row: Row, call: Row | None, most: str) -> str:
    kind = "late" if row.policy == "late" else "bound" if row.policy in text.BOUNDS else ""
    cells = [f"{seconds:.3g}" for seconds in (row.p50_s, row.p95_s, row.p99_s)]
    cells += [_ratio(row.vs.get("led")), _ratio(row.vs.get("round_robin"))]
    cells += [f"{seconds:.3g}" for seconds in (call.p50_s, call.p95_s, call.p99_s)] if call else ["", "", ""]
    cells += ["" if row.slo_attainment is None else f"{row.slo_attainment * 100:.1f} %"]
    cells += [html.escape(most)]
    dot = f'<span class="dot p-{row.policy}"></span>'
    named = f'<td data-p="{row.policy}">{dot}{text.name_of(row.policy)}</td><td class="text">{row.arm or "–"}</td>'
    return f'<tr class="{kind}">{named}' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    low, high = ratio.interval or (0.0, 0.0)
    return f"{ratio.p99:.2f} <small>{low:.2f}–{high:.2f}</small>" if low < high else f"{ratio.p99:.2f}"


def _cdf(curves: Sequence[Curve], per_seed: float) -> str:
    top = 0.999 if per_seed >= 500 else 0.99  # a higher quantile of so few workflows is their maximum
    series = _series(
        (c.policy, seconds, level)
        for c in curves
        for level, seconds in zip(c.levels, c.latency_s, strict=True)
        if level <= top
    )
    x = log_axis("workflow latency", [seconds for s in series for seconds, _ in s.points], " s")
    plot = lines(series, x, tail_axis("share of workflows done", top), (1060, 380), labelled=False, dots=False)
    key = "".join(
        f'<span data-p="{s.name}"><i style="background:var(--{s.name})"></i>{s.label}</span>'
        for s in sorted(series, key=lambda s: s.points[-1][0])
    )
    note = "The scale stretches towards 100 %, where the tail is."
    return figure("How long workflows take", f'<div class="key">{key}</div>{plot}', note)


def _where(curves: Sequence[Curve]) -> str:
    rank = {name: i for i, name in enumerate(reversed(PLOTTED))}
    kept = sorted((c for c in curves if c.policy in rank), key=lambda c: sum(c.parts_s.values()))
    bars = [(c.policy, text.name_of(c.policy), {p: c.parts_s.get(p, 0.0) for p in PARTS}) for c in kept]
    key = "".join(f'<span><i style="background:var(--{part})"></i>{part}</span>' for part in PARTS)
    note = "Mean seconds per workflow along its critical path: the chain of calls that decided when it ended."
    return figure("Where a workflow's time went", f'<div class="key">{key}</div>' + stacked(bars, width=1060), note)

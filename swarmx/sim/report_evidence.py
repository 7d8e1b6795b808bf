"""The parts of report.html that say how far to trust the rest, and how to get it again."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping

from swarmx.sim import report_text as text
from swarmx.sim.report import Calibration, Fidelity, Ratio, Report
from swarmx.sim.report_page import figure, pair, section, table
from swarmx.sim.report_plots import Axis, Series, lines, log_axis, ranges, tail_axis


def arms(report: Report) -> str:
    """Policies that use predictions, with every arm they were run with, relative to LED."""
    figures = []
    for suite, regime in text.groups(report):
        load = text.main_load(report, suite, regime)
        here = (suite, regime, load, "workflow")
        rows = [r for r in report.rows if (r.suite, r.regime, r.load, r.level) == here and "led" in r.vs]
        counted = Counter(r.policy for r in sorted(rows, key=lambda r: r.p99_s))
        several = [policy for policy, count in counted.items() if count > 1]
        items = [
            (r.policy, f"{text.name_of(r.policy)} · {r.arm or 'none'}", r.vs["led"].p99, *_ends(r.vs["led"]))
            for policy in several
            for r in sorted(rows, key=lambda r: text.arm_order(r.arm))
            if r.policy == policy
        ]
        if items:
            values = [v for item in items for v in item[2:]]
            x = log_axis("workflow P99 relative to LED, 95 % interval", [*values, 1.0])
            figures.append(figure(f"{suite} · {regime} · load {load:g}", ranges(items, x)))
    note = (
        "The same policies with the true lengths (oracle), the trained predictor, averages per call type, "
        "and nothing at all. Left of the dashed line is better than LED."
    )
    return section("What the predictions are worth", note, pair(figures)) if figures else ""


def predictor(report: Report) -> str:
    """Reliability and pinball loss of the predictor on held-out calls."""
    fit = report.figures.calibration
    if fit is None:
        return ""
    ticks = [(p, f"{p * 100:g} %") for p in (0.0, 0.25, 0.5, 0.75, 1.0)]
    reliability = lines(
        [Series("predictor", "predictor", list(zip(fit.levels, fit.observed, strict=True)))],
        Axis("predicted level", 0, 1, ticks),
        Axis("observed share below", 0, 1, ticks),
        (520, 380),
        diagonal=True,
        labelled=False,
    )
    error = max(abs(o - level) for level, o in zip(fit.levels, fit.observed, strict=True))
    note = (
        f"On {fit.n:,} held-out calls, whose templates it never saw, the share below a predicted quantile is "
        f"off by at most {error * 100:.1f} points."
    )
    plots = [
        figure("Predicted against observed quantiles", reliability, "On the dashed line is right."),
        figure("Pinball loss against baselines", _pinball(fit), "Below 1 beats the quantiles per call type."),
    ]
    return section("Can the predictor be trusted?", note, pair(plots))


def _pinball(fit: Calibration) -> str:
    base = fit.pinball.get("per_type") or next(iter(fit.pinball.values()))
    series = [
        Series(name, name.replace("_", " "), [(x, v / b) for x, v, b in zip(fit.levels, loss, base, strict=True)])
        for name, loss in fit.pinball.items()
    ]
    y = log_axis("pinball loss / per type", [v for s in series for _, v in s.points] + [1.0])
    return lines(series, tail_axis("quantile level", 0.995), y, (520, 380))


def fidelity(report: Report) -> str:
    """The recorded runs beside their replay."""
    if not report.figures.fidelity:
        return ""
    above = '<tr class="over"><th colspan="3"></th>' + "".join(
        f'<th colspan="3">{p}, seconds</th>' for p in ("P50", "P95", "P99")
    )
    each = "<th>recorded</th><th>simulated</th><th>ratio</th>" * 3
    head = f'{above}</tr><tr><th>run</th><th class="text">of</th><th>n</th>{each}</tr>'
    body = "".join(_fidelity_row(one) for one in report.figures.fidelity)
    note = (
        "The recorded runs replayed: the same arrivals, each call on the replica that served it, durations "
        "from the fitted engine."
    )
    return section("How true is the simulation?", note, table(head, body))


def _fidelity_row(one: Fidelity) -> str:
    cells = []
    for p in ("p50", "p95", "p99"):
        recorded, simulated = one.recorded_s[p], one.simulated_s[p]
        cells += [f"{recorded:.3g}", f"{simulated:.3g}", f"{simulated / recorded:.2f}"]
    named = f'<td>{html.escape(one.run)}</td><td class="text">{one.level}s</td><td>{one.n:,}</td>'
    return f"<tr>{named}" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def without_gain(report: Report) -> str:
    """Every regime and load where `late` is not clearly better than the best simple policy, losses first."""
    found = text.without_gain(report)
    title = "Where there is nothing to gain, or this run cannot tell"
    if not found:
        return section(title, "At every load of this report late beats the best policy without predictions.", "")
    heads = (
        "load",
        "best without predictions",
        "workflow P99 of late against it",
        "95 % interval",
        "verdict",
    )
    head = '<th>suite</th><th class="text">regime</th>' + "".join(f"<th>{h}</th>" for h in heads)
    return section(title, "", table(f"<tr>{head}</tr>", "".join(_flat_row(one) for one in found)))


def _ends(ratio: Ratio) -> tuple[float, float]:
    return ratio.interval or (ratio.p99, ratio.p99)


def _flat_row(one: text.Gain) -> str:
    kind, verdict = ("bad", "loses") if one.is_loss else ("flat", "cannot tell" if one.is_undecided else "no gain")
    cells = (
        f"{one.load:g}",
        text.name_of(one.against),
        f"{(one.ratio.p99 - 1) * 100:+.0f} %",
        one.ratio.percent().removeprefix("95 % interval "),
    )
    named = f'<td>{html.escape(one.suite)}</td><td class="text">{html.escape(one.regime)}</td>'
    shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells).replace("-", "−")
    return f'<tr>{named}{shown}<td class="{kind}">{verdict}</td></tr>'


def about(report: Report) -> str:
    """Definitions, data, versions, and the command that gives the same report."""
    meta = report.meta
    pairs = {
        **meta.definitions,
        "data": ", ".join(f"{key} {value}" for key, value in meta.data.items()),
        "seeds": ", ".join(str(seed) for seed in meta.seeds),
        "versions": ", ".join(f"{key} {value}" for key, value in meta.versions.items()),
        "git": meta.git,
        "written": meta.created,
    }
    body = _list(pairs)
    if meta.settings:
        numbers = _list({key: f"{value:.4g}" for key, value in meta.settings.items()})
        body += f"<details><summary>Settings measured or chosen</summary>{numbers}</details>"
    again = f"<p>The same report again:</p><pre>{html.escape(meta.command)}</pre>"
    return section("Definitions", "", body + again)


def _list(pairs: Mapping[str, str]) -> str:
    listed = (f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in pairs.items())
    return f"<dl>{''.join(listed)}</dl>"

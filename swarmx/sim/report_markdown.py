"""The part of a report that stands in a README: workflow P99 against LED, by load, with intervals."""

from __future__ import annotations

from swarmx.sim.report import Report, Row
from swarmx.sim.report_scaling import markdown
from swarmx.sim.report_text import ARM_ORDER, LED, max_load, name_of

SHOWN = ("round_robin", "power_of_two", LED, "central_fcfs", "murakkab", "swarmx", "late", "clairvoyant")
LOADS = (0.5, 0.7, 0.9)


def summary(report: Report, suite: str = "headline", regimes: tuple[str, ...] = ("het", "hom")) -> str:
    """Two Markdown tables: workflow P99 relative to LED with its 95 % interval, and seconds at the middle load.

    Without the suite, the tables of scalers, where the report holds any.
    """
    if not any(row.suite == suite for row in report.rows):
        return markdown(report)
    lines = [
        f"Workflow P99 relative to LED [95 % interval], {len(report.meta.seeds)} paired seeds; "
        f"`{report.meta.command}`:",
        "",
        "| policy | predictions | " + " | ".join(f"{r} {load}" for r in regimes for load in LOADS) + " |",
        "|---" * (2 + len(regimes) * len(LOADS)) + "|",
    ]
    for policy in SHOWN:
        cells = [_row(report, suite, regime, load, policy) for regime in regimes for load in LOADS]
        if any(cells):
            arm = next((c.arm for c in cells if c is not None), None)
            ratios = " | ".join(_ratio(cell) for cell in cells)
            lines.append(f"| {name_of(policy)} | {arm or '–'} | {ratios} |")
    lines += ["", "Seconds at load 0.7, and the largest load with workflow P99 ≤ 2× that without a queue:", ""]
    lines += [
        "| policy | " + " | ".join(f"{r} P50 / P95 / P99 | {r} max load" for r in regimes) + " |",
        "|---" * (1 + 2 * len(regimes)) + "|",
    ]
    for policy in SHOWN:
        rows = [_row(report, suite, regime, 0.7, policy) for regime in regimes]
        if all(rows):
            cells_of = (f"{r.p50_s:.1f} / {r.p95_s:.1f} / {r.p99_s:.1f} | {max_load(report, r)}" for r in rows if r)
            lines.append(f"| {name_of(policy)} | " + " | ".join(cells_of) + " |")
    return "\n".join(lines) + "\n"


def _row(report: Report, suite: str, regime: str, load: float, policy: str) -> Row | None:
    """The row of a policy with its usual predictions; None when it was not run."""
    found = [
        row
        for row in report.rows
        if (row.suite, row.regime, row.load, row.policy, row.level) == (suite, regime, load, policy, "workflow")
    ]
    order = {arm: i for i, arm in enumerate(ARM_ORDER)}
    return min(found, key=lambda row: order.get(row.arm or "", len(order)), default=None)


def _ratio(row: Row | None) -> str:
    if row is None or "led" not in row.vs:
        return "–"
    if row.policy == LED:
        return "1"
    led = row.vs["led"]
    return f"{led.p99:.2f}" + (f" [{led.interval[0]:.2f}, {led.interval[1]:.2f}]" if led.interval else "")

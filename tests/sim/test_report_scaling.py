"""What reports say of scalers: savings with their intervals, and regimes without any."""

from __future__ import annotations

from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from swarmx.sim import report_text
from swarmx.sim.report import Meta, Report, Row
from swarmx.sim.report_frontier import drawing, near_rows
from swarmx.sim.report_html import render
from swarmx.sim.report_markdown import summary
from swarmx.sim.report_scaling import parted, saving, sentences

META = Meta([0, 1, 2, 3], "abc", {"name": "made up"}, {}, {}, "swarmx evaluate --suite scaling_agents", "now")
SUITE = "scaling_agents"


def row(policy: str, p95_s: float, replicas: float, level: str = "workflow", **figures: float) -> Row:
    extra = {f"tail_demand_at_equal_p95_{name}": value for name, value in figures.items()}
    return Row(
        SUITE, SUITE, "bursts", 1.0, policy, None, level, 400, p95_s / 2, p95_s, 2 * p95_s,  # type: ignore[arg-type]
        slo_attainment=0.9, replica_seconds=replicas * 100, mean_replicas=replicas, flaps=3, extra=extra,
    )  # fmt: skip


def report(**of_hpa: float) -> Report:
    whole = [
        row("hpa", 100.0, 10.0, **of_hpa), row("tail_demand", 90.0, 9.0), row("tail_demand(level=0.5)", 120.0, 7.0),
        row("clairvoyant", 80.0, 6.0, ratio=1.3),
    ]  # fmt: skip
    return Report(META, [*whole, *(row(r.policy, r.p95_s, r.mean_replicas or 0.0, "call") for r in whole)])


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        (
            {"ratio": 0.7, "low": 0.6, "high": 0.8},
            "0.70 [0.60, 0.80] of hpa's at equal workflow P95",
        ),
        ({"ratio": 0.7, "low": 0.6, "high": 0.8, "limit": 1.0}, "≤ 0.70"),
        ({"ratio": 0.98, "low": 0.9, "high": 1.1}, "gains nothing, 0.98 [0.90, 1.10] of hpa's"),
        (
            {"ratio": 0.86, "low": 0.7, "high": 1.02},
            "may gain or not, more seeds will tell, 0.86 [0.70, 1.02]",
        ),
        ({"ratio": 0.7, "low": 0.6}, "more seeds will tell, 0.70 [0.60, –] of hpa's"),
        ({"ratio": 1.2, "low": 1.1, "high": 1.3}, "needs more replica-seconds, 1.20"),
        ({}, "at no setting tried as good as hpa"),
    ],
)
def test_a_regime_is_told_as_its_interval_allows(figures: dict[str, float], told: str) -> None:
    (sentence,) = sentences(report(**figures), SUITE)
    assert told in sentence
    assert report_text.verdict(report(**figures)) == sentence


def test_the_table_shows_policies_as_they_come_and_the_page_every_setting() -> None:
    whole = report(ratio=0.7, low=0.6, high=0.8)
    console = Console(width=140, record=True, file=StringIO())
    console.print(report_text.table(whole, SUITE, "bursts", 140))
    shown = console.export_text()
    assert "0.70 [0.60, 0.80]" in shown
    assert "level=0.5" not in shown
    page = render(whole)
    assert "tail demand(level=0.5)" in page
    assert page.count("<svg") == 2
    assert 'data-p="tail_demand"' in page


def test_a_narrow_terminal_cuts_nothing_off() -> None:
    whole = report(ratio=0.7, low=0.6, high=0.8, limit=1.0)
    console = Console(width=80, record=True, file=StringIO())
    console.print(report_text.table(whole, SUITE, "bursts", 80))
    shown = console.export_text()
    assert "≤0.70 [0.60,0.80]" in shown
    assert "…" not in shown
    assert all(name in shown for name in ("P50", "P95", "P99", "in SLO", "repl.", "flaps"))


def test_at_equal_attainment_is_marked_where_no_setting_has_the_latency() -> None:
    whole = report()
    whole.rows[0].extra.update({"tail_demand_at_equal_attainment_ratio": 0.85})
    console = Console(width=80, record=True, file=StringIO())
    console.print(report_text.table(whole, SUITE, "bursts", 80))
    assert "0.85*" in console.export_text()


def test_a_policy_far_from_all_others_is_named_and_not_drawn() -> None:
    whole = report(ratio=0.7)
    rows = [*whole.rows, *(row("fixed", 5000.0, 3.0, level) for level in ("workflow", "call"))]
    near, far = near_rows([r for r in rows if r.level == "workflow"])
    assert far == ["fixed"]
    assert {r.policy for r in near} == {r.policy for r in whole.rows}
    page = render(Report(META, rows))
    assert "workflow P95, without fixed" in page
    assert page.count('class="series p-fixed"') == 0


def test_suites_of_scalers_and_of_routers_are_told_apart() -> None:
    whole = report()
    routed, scaled = parted(whole)
    assert routed.rows == []
    assert scaled.rows == whole.rows
    assert saving(whole.rows[1], "p95") is None


def test_the_frontier_can_be_drawn_alone() -> None:
    alone = ElementTree.fromstring(drawing(report(ratio=0.7)))
    assert alone.tag.endswith("svg")
    assert len(alone.findall("{http://www.w3.org/2000/svg}svg")) == 2
    with pytest.raises(ValueError, match="no scaling suite"):
        drawing(Report(META, []))


def test_the_summary_holds_a_table_of_policies_as_they_come() -> None:
    lines = summary(report(ratio=0.7, low=0.6, high=0.8)).splitlines()
    assert len([line for line in lines if line.startswith("| ") and "policy" not in line]) == 3
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1

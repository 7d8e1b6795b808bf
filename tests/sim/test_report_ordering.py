"""The claims of the suites of disciplines are read off the rows that an evaluation wrote."""

from __future__ import annotations

from swarmx.sim.report import Meta, Report, Row
from swarmx.sim.report_html import render
from swarmx.sim.report_ordering import CLAIMS, ours, section, sentences, table
from swarmx.sim.report_text import table as shown
from swarmx.sim.report_text import verdict
from swarmx.sim.suites.ordering_suites import ORDERING


def row(policy: str, load: float, **extra: float) -> Row:
    return Row("ordering_saga", "w", "as in the paper", load, policy, None, "workflow", 5, 1.0, 2.0, 3.0, extra=extra)


def report(*rows: Row) -> Report:
    return Report(Meta([0, 1], "", {}, {}, {}, "", ""), list(rows))


def test_every_claim_names_a_row_of_its_suite() -> None:
    for suite in ORDERING:
        assert suite.shown
        for claim in suite.shown:
            assert claim.load in suite.loads
            assert {claim.policy, claim.over} - {None} <= set(suite.policies)
    assert set(CLAIMS) == {suite.name for suite in ORDERING}


def test_the_papers_figure_stands_beside_ours() -> None:
    made = report(
        row("late", 0.8, tct_over_expected=1.1, slo_attainment=0.99), row("affinity", 0.8, tct_over_expected=2.2)
    )
    lines = sentences(made, "ordering_saga")
    assert "saga: task time of affinity alone over late: paper 1.64; here 2" in lines
    assert "saga: tasks within 1.5 times their expected time: paper 0.992; here 0.99" in lines
    assert len(lines) == 2  # what the rows do not have is not claimed
    assert verdict(made) == "\n".join(lines)


def test_a_figure_that_is_missing_is_none() -> None:
    claim = CLAIMS["ordering_saga"][0]
    assert ours(claim, {}) is None
    assert ours(claim, {("affinity", 0.8): row("affinity", 0.8, tct_over_expected=2.0)}) is None


def test_the_table_has_every_policy_at_every_load_with_the_figures_that_are_spoken_of() -> None:
    slo = {"slo_attainment": 1.0}
    made = report(row("late", 0.8, mean_s=1.0, **slo), row("late", 1.2, mean_s=2.0), row("affinity", 0.8, other=0.5))
    for found in (table(made, "ordering_saga", "as in the paper"), shown(made, "ordering_saga", "as in the paper")):
        assert found.row_count == 3
        assert [c.header for c in found.columns] == ["policy", "load", "slo attainment", "mean s"]


def test_the_page_has_the_claims_and_the_figures() -> None:
    made = report(row("late", 0.8, slo_attainment=0.99), row("affinity", 0.8, slo_attainment=0.3))
    found = section(made)
    assert "tasks within 1.5 times their expected time: paper 0.992; here 0.99" in found
    assert '<tr class="late"><td class="text">late</td><td>0.8</td><td>0.990</td></tr>' in found
    assert found in render(made) and "states no gain" not in render(made)
    assert section(report()) == ""

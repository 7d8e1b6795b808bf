"""What a report says: gains against the best simple policy only, and the lack of them."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from swarmx.sim import report_text as text
from swarmx.sim.report import NO_INTERVAL, Meta, Ratio, Report, Row
from swarmx.sim.report_html import render
from swarmx.sim.report_markdown import summary

META = Meta(list(range(8)), "abc", {"name": "log"}, {}, {"load": "<share>"}, "swarmx evaluate", "now")


def row(policy: str, p99: float, arm: str | None = None, load: float = 0.8, **vs: Ratio) -> Row:
    return Row("headline", "log", "het", load, policy, arm, "workflow", 50, p99 / 4, p99 / 2, p99, vs=vs)


def ratio(p99: float, low: float, high: float) -> Ratio:
    return Ratio(1.0, 1.0, p99, (low, high))


def report(*rows: Row) -> Report:
    return Report(META, list(rows))


def test_the_gain_is_measured_against_the_best_simple_policy() -> None:
    late = row("late", 6, "trained", central_fcfs=ratio(0.75, 0.7, 0.8), led=ratio(0.6, 0.5, 0.7))
    one = text.gain(
        report(row("round_robin", 90), row(text.LED, 10), row("central_fcfs", 8), late),
        "headline",
        "het",
        0.8,
    )
    assert one is not None
    assert (one.against, one.ratio.p99) == ("central_fcfs", 0.75)


def test_policies_that_predict_or_know_the_truth_are_not_simple() -> None:
    late = row("late", 6, "trained", led=ratio(0.6, 0.5, 0.7))
    rows = (
        row("swarmx", 5, "trained"),
        row("clairvoyant", 4),
        row("murakkab", 5, "type"),
        row(text.LED, 10),
        late,
    )
    one = text.gain(report(*rows), "headline", "het", 0.8)
    assert one is not None
    assert one.against == text.LED


def test_a_gain_is_told_with_its_interval() -> None:
    late = row("late", 6, "trained", led=ratio(0.6, 0.55, 0.66))
    told = text.verdict(report(row(text.LED, 10), late))
    assert "cuts workflow P99 by 40 %" in told
    assert "95 % interval 34 to 45 %, 8 seeds" in told


def test_an_interval_around_one_is_no_gain() -> None:
    late = row("late", 9.8, "trained", led=ratio(0.98, 0.93, 1.05))
    told = text.verdict(report(row(text.LED, 10), late))
    assert "nothing to gain" in told
    assert "-7 to +5 %" in told


def test_an_interval_too_wide_to_deny_a_gain_says_so() -> None:
    late = row("late", 8, "trained", led=ratio(0.8, 0.5, 1.2))
    told = text.verdict(report(row(text.LED, 10), late))
    assert "cannot tell" in told
    assert "nothing to gain" not in told


def test_one_seed_states_no_interval_anywhere() -> None:
    late = row("late", 8, "trained", led=ratio(0.8, *NO_INTERVAL))
    shown = report(row(text.LED, 10), late)
    told = text.verdict(shown)
    assert "moves workflow P99 by -20 %" in told and "(one seed, no interval)" in told
    out = StringIO()
    Console(file=out, width=200).print(text.table(shown, "headline", "het"))
    for given in (told, out.getvalue(), render(shown), summary(shown, regimes=("het",))):
        assert "999" not in given and "1000000" not in given and "0.00" not in given


def test_a_gain_too_small_to_matter_is_no_gain_even_when_its_interval_is_narrow() -> None:
    late = row("late", 9.8, "trained", led=ratio(0.98, 0.97, 0.99))
    assert "nothing to gain" in text.verdict(report(row(text.LED, 10), late))


def test_losses_are_told_and_come_first_among_the_regimes_without_gain() -> None:
    flat = row("late", 10, "trained", 0.5, led=ratio(1.0, 0.95, 1.05))
    loss = row("late", 12, "trained", 0.9, led=ratio(1.2, 1.1, 1.3))
    shown = report(row(text.LED, 10, load=0.5), flat, row(text.LED, 10, load=0.9), loss)
    found = text.without_gain(shown)
    assert [one.load for one in found] == [0.9, 0.5]
    assert "20 % above" in text.sentence(found[0], 8)


def test_the_trained_arm_is_shown_when_there_are_several() -> None:
    rows = [row("late", 5, "oracle"), row("late", 6, "trained"), row("late", 7, "none")]
    assert [r.arm for r in text.rows_at(report(*rows), "headline", "het", 0.8)] == ["trained"]


def test_a_report_without_late_says_that_it_states_no_gain() -> None:
    assert "states no gain" in text.verdict(report(row(text.LED, 10)))


def test_the_table_shows_every_policy() -> None:
    late = row("late", 6, "trained", led=ratio(0.6, 0.55, 0.66))
    out = StringIO()
    Console(file=out, width=200).print(text.table(report(row(text.LED, 10), late), "headline", "het"))
    assert "0.60 [0.55, 0.66]" in out.getvalue()
    assert "LED" in out.getvalue()


def test_the_page_needs_nothing_from_outside_and_escapes_what_it_shows() -> None:
    late = row("late", 6, "trained", led=ratio(0.6, 0.55, 0.66))
    page = render(report(row(text.LED, 10), late))
    assert page == render(report(row(text.LED, 10), late))
    assert "&lt;share&gt;" in page
    for outside in ("http:", "https:", "src=", "@import", "url("):
        assert outside not in page

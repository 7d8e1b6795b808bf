"""What a report says in words and in a terminal: headline, regimes with nothing to gain, table."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarmx.sim import report_ordering as ordering
from swarmx.sim import report_scaling as scaling
from swarmx.sim.report import Ratio, Report, Row

LED = "least_outstanding_per_speed"
SIMPLE = (
    "random",
    "round_robin",
    "power_of_two",
    "least_outstanding",
    LED,
    "central_fcfs",
)  # predict nothing
BOUNDS = ("clairvoyant", "late_clairvoyant")  # know the true lengths; nobody can run them
ARM_ORDER = ("trained", "type", "oracle", "none")  # the arm that a table shows when a policy has several
REFERENCE = {LED: "led"}  # names of policies inside `vs`, where they differ
HEADLINE_LOAD = 0.8
ARM_SHOWN = ("oracle", "trained", "type", "none")  # best informed first
MISSED = 0.1  # a gain as large as this is not called "nothing" while the interval holds it
WORTH = 0.03  # gains below this share are within what a change of workload moves, whatever their interval


PLACES = {  # regimes in words
    "het": "mixed replicas (het)",
    "hom": "equal replicas (hom)",
    "as_recorded": "the recorded replicas (as_recorded)",
}
ARM_WORDS = {"none": "no", "type": "per-type"}
SHORT = {LED: "LED", "least_outstanding": "least outstanding"}
ROOMY = 110  # columns of a terminal that also shows P99 at the other loads


def name_of(policy: str) -> str:
    """A policy's name as people write it."""
    return SHORT.get(policy, policy.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Gain:
    """P99 of a policy against the best policy that predicts nothing, in one suite, regime and load."""

    suite: str
    regime: str
    load: float
    policy: str
    arm: str | None
    against: str
    ratio: Ratio

    @property
    def is_real(self) -> bool:
        return self.ratio.ci95[1] < 1 and self.ratio.p99 <= 1 - WORTH

    @property
    def is_loss(self) -> bool:
        return self.ratio.ci95[0] > 1

    @property
    def is_undecided(self) -> bool:
        """The interval is too wide to say that there is nothing."""
        return not self.is_real and not self.is_loss and self.ratio.ci95[0] < 1 - MISSED


def groups(report: Report) -> list[tuple[str, str]]:
    """(suite, regime) pairs in the order of the rows."""
    return list(dict.fromkeys((row.suite, row.regime) for row in report.rows))


def loads(report: Report, suite: str, regime: str) -> list[float]:
    """Loads of one regime, ascending."""
    return sorted({row.load for row in report.rows if (row.suite, row.regime) == (suite, regime)})


def main_load(report: Report, suite: str, regime: str) -> float:
    """The load that a headline speaks of: the one nearest to `HEADLINE_LOAD`."""
    return min(loads(report, suite, regime), key=lambda load: abs(load - HEADLINE_LOAD))


def rows_at(report: Report, suite: str, regime: str, load: float, level: str = "workflow") -> list[Row]:
    """One row per policy, of its default arm, in the order of the report."""
    best: dict[str, Row] = {}
    for row in report.rows:
        if (row.suite, row.regime, row.load, row.level) != (suite, regime, load, level):
            continue
        if row.policy not in best or _rank(row.arm) < _rank(best[row.policy].arm):
            best[row.policy] = row
    return list(best.values())


def arm_order(arm: str | None) -> int:
    """Best informed first; arms that this list does not know come last."""
    return ARM_SHOWN.index(arm) if arm in ARM_SHOWN else len(ARM_SHOWN)


def _rank(arm: str | None) -> int:
    return ARM_ORDER.index(arm) if arm in ARM_ORDER else len(ARM_ORDER)


def gain(report: Report, suite: str, regime: str, load: float, policy: str = "late") -> Gain | None:
    """What `policy` gains over the best simple policy there; None when the report lacks either."""
    rows = {row.policy: row for row in rows_at(report, suite, regime, load)}
    simple = [row for name, row in rows.items() if name in SIMPLE]
    if policy not in rows or not simple:
        return None
    best = min(simple, key=lambda row: row.p99_s)
    ratio = rows[policy].vs.get(REFERENCE.get(best.policy, best.policy))
    if ratio is None:
        return None
    return Gain(suite, regime, load, policy, rows[policy].arm, best.policy, ratio)


def gains(report: Report, policy: str = "late") -> list[Gain]:
    """The gain in every suite, regime and load that allows one."""
    found = (
        gain(report, suite, regime, load, policy)
        for suite, regime in groups(report)
        for load in loads(report, suite, regime)
    )
    return [one for one in found if one is not None]


def sentence(one: Gain, seeds: int) -> str:
    """One gain in words, with its interval."""
    place = f"On {PLACES.get(one.regime, one.regime)} at load {one.load:g}"
    who = f"{one.policy} with {ARM_WORDS.get(one.arm, one.arm)} predictions" if one.arm else one.policy
    against = f"the best policy without predictions, {name_of(one.against)}"
    change = (one.ratio.p99 - 1) * 100
    between = one.ratio.percent() + (f", {seeds} seeds" if one.ratio.interval else "")
    if one.is_real:
        low, high = ((1 - bound) * 100 for bound in one.ratio.ci95[::-1])
        between = f"95 % interval {low:.0f} to {high:.0f} %, {seeds} seeds"
        return f"{place}, {who} cuts workflow P99 by {-change:.0f} % against {against} ({between})."
    if one.is_loss:
        return f"{place}, {who} has a workflow P99 {change:.0f} % above that of {against} ({between})."
    if one.is_undecided:
        told = f"{who} moves workflow P99 by {change:+.0f} % against {against}"
        return f"{place}, this run cannot tell: {told} ({between}); more seeds will."
    told = f"{who} moves workflow P99 by {change:+.0f} %"
    return f"{place}, there is nothing to gain over {against}: {told} ({between})."


def headline(report: Report, suite: str | None = None) -> list[str]:
    """One sentence per regime at its main load, of one suite or of the first one."""
    wanted = suite or groups(report)[0][0]
    out = []
    for name, regime in groups(report):
        one = gain(report, name, regime, main_load(report, name, regime)) if name == wanted else None
        if one is not None:
            out.append(sentence(one, len(report.meta.seeds)))
    return out or ["This report holds no `late` row beside a policy without predictions, so it states no gain."]


def without_gain(report: Report) -> list[Gain]:
    """Where `late` is not clearly better than the best simple policy, losses first."""
    return sorted((one for one in gains(report) if not one.is_real), key=lambda one: not one.is_loss)


def verdict(report: Report) -> str:
    """The last lines of `swarmx evaluate`: what each suite's cluster would gain, or that there is nothing."""
    suites = list(dict.fromkeys(suite for suite, _ in groups(report)))
    scaled = [line for suite in suites for line in scaling.sentences(report, suite)]
    scaled += [line for suite in suites for line in ordering.sentences(report, suite)]
    if scaled and all(suite.startswith((scaling.PREFIX, ordering.PREFIX)) for suite in suites):
        return "\n".join(scaled)
    if len(suites) == 1:
        return " ".join(headline(report, suites[0]))
    told = (f"{suite}: {' '.join(headline(report, suite))}" for suite in suites if gains_of(report, suite))
    return "\n".join([*told, *scaled]) or headline(report)[0]


def gains_of(report: Report, suite: str) -> list[Gain]:
    """Gains of `late` in one suite."""
    return [one for one in gains(report) if one.suite == suite]


def max_load(report: Report, row: Row) -> str:
    """The row's `max_rate_at_slo` as people should read it: the ends of the sweep are bounds."""
    every = loads(report, row.suite, row.regime)
    if row.max_rate_at_slo is None:
        return ""
    if row.max_rate_at_slo <= 0:
        return f"< {every[0]:g}"
    return f"≥ {every[-1]:g}" if row.max_rate_at_slo >= every[-1] else f"{row.max_rate_at_slo:.2f}"


def table(report: Report, suite: str, regime: str, width: int = 80) -> Table:
    """Percentiles of whole workflows at the main load, with P99 relative to LED and round robin.

    Policies that use predictions are shown with their default arm, which the title names.
    width : of the terminal; where there is room, P99 at the other loads as well
    """
    if suite.startswith(scaling.PREFIX):
        return scaling.table(report, suite, regime, width)
    if suite.startswith(ordering.PREFIX):
        return ordering.table(report, suite, regime)
    at = main_load(report, suite, regime)
    others = [load for load in loads(report, suite, regime) if load != at] if width >= ROOMY else []
    rows = sorted(rows_at(report, suite, regime, at), key=lambda row: row.p99_s)
    arms = ", ".join(dict.fromkeys(row.arm for row in rows if row.arm and row.policy not in BOUNDS)) or "none"
    seeds = len(report.meta.seeds)
    title = f"{suite}, {regime}, load {at:g}: workflow seconds, {seeds} seeds, predictions {arms}"
    out = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    out.add_column("policy", no_wrap=True)
    for name in (
        "P50",
        "P95",
        "P99",
        "P99 / LED",
        "/ RR",
        "max load",
        *(f"P99 at {load:g}" for load in others),
    ):
        out.add_column(name, justify="right", no_wrap=True)
    elsewhere = {load: {row.policy: row for row in rows_at(report, suite, regime, load)} for load in others}
    for row in rows:
        figures = [f"{seconds:.3g}" for seconds in (row.p50_s, row.p95_s, row.p99_s)]
        robin = row.vs.get("round_robin")
        ratios = [_with_interval(row.vs.get("led")), f"{robin.p99:.2f}" if robin else ""]
        further = [f"{found[row.policy].p99_s:.3g}" if row.policy in found else "" for found in elsewhere.values()]
        style = "bold" if row.policy == "late" else "dim" if row.policy in BOUNDS else None
        cells = (*figures, *ratios, max_load(report, row), *further)
        out.add_row(name_of(row.policy), *cells, style=style)
    return out


def _with_interval(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    low, high = ratio.interval or (0.0, 0.0)
    return f"{ratio.p99:.2f} [{low:.2f}, {high:.2f}]" if low < high else f"{ratio.p99:.2f}"

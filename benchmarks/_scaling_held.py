"""What scaling is held to, each figure with its 95 % interval over seeds: simulated, so the machine does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student

from swarmx.sim.report import Row
from swarmx.sim.report_scaling import saving
from swarmx.sim.suites import FULL, QUICK, Material, suite
from swarmx.sim.suites.cells import Cell
from swarmx.sim.suites.equal_cost import OURS, family
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.run import run_cells
from swarmx.sim.suites.summary import rows_of

NOTHING = Material("none", (), {}, (), None, "")
LAW_ATTAINMENT, LAW_REPLICAS = 0.958, 5.93  # of llm-d's published ramp
RATIO_ONE, SLOW_STARTS = "cold 30 s, calls 30 s", ("cold 60 s, calls 10 s", "cold 120 s, calls 10 s")


@dataclass(frozen=True, slots=True)
class Held:
    """One figure. low, high : 95 % interval over seeds; is_limit : even our cheapest setting is better than the rival

    limit : what it must not exceed; is_met : "yes" with its whole interval, "figure" without, "no", or "open" where the
        figure is an upper limit and a cheaper setting would tell
    """

    what: str
    figure: float | None
    low: float | None
    high: float | None
    limit: float
    is_limit: bool = False

    @property
    def is_met(self) -> str:
        if self.figure is None or self.figure > self.limit:
            return "open" if self.is_limit else "no"
        return "yes" if self.high is not None and self.high <= self.limit else "figure"


def run(quick: bool) -> dict[str, Any]:
    """`held`: the figures; `rows`: workflows of the policies that they come from."""
    ramp = outcomes("scaling_ramp", ("ramp",), ("keda_latency",), quick)
    regimes = (RATIO_ONE, SLOW_STARTS[0]) if quick else (RATIO_ONE, *SLOW_STARTS)
    bursts = outcomes("scaling_bursts", regimes, ("hpa", "queue_length"), quick)
    rows = [*rows_of(ramp, {}), *rows_of(bursts, {})]
    figures = [*law(ramp), at_equal(rows, "ramp", "keda_latency", "attainment", 0.95)]
    figures += [at_equal(rows, regime, "hpa", "p95", 0.75) for regime in regimes if regime in SLOW_STARTS]
    figures.append(at_equal(rows, RATIO_ONE, "queue_length", "p95", 1.0))
    held = [{**asdict(figure), "is_met": figure.is_met} for figure in figures]
    return {"held": held, "rows": [short(row, rows) for row in rows if row.level == "workflow"]}


def outcomes(name: str, regimes: Iterable[str], rivals: Iterable[str], quick: bool) -> dict[Cell, Outcome]:
    """Of the rivals as they come and of our curve; two hours, or half of one when `quick`."""
    chosen, seeds = suite(name), 3 if quick else 4
    plan = replace((QUICK if quick else FULL).only([OURS]), seeds=tuple(range(seeds)))
    cells = [
        cell
        for cell in chosen.cells(NOTHING, plan)
        if cell.regime in set(regimes) and (cell.policy in set(rivals) or is_curve(cell))
    ]
    return run_cells(chosen, NOTHING, cells)


def is_curve(cell: Cell) -> bool:
    """Whether it is ours with type averages."""
    return family(cell.policy) == OURS and cell.arm == "type"


def law(found: Mapping[Cell, Outcome]) -> list[Held]:
    """How far the KEDA law on our engine is from what was published of it."""
    runs = [outcome for cell, outcome in found.items() if cell.policy == "keda_latency"]
    attained = off("KEDA law on the ramp: attainment, off 95.8 %", [o.call[4] for o in runs], LAW_ATTAINMENT, 0.01)
    replicas = off("KEDA law on the ramp: replicas, off 5.93", [o.replicas for o in runs], LAW_REPLICAS, 0.1)
    return [attained, replicas]


def off(what: str, values: list[float], published: float, limit: float) -> Held:
    """Distance of the mean over seeds from what was published."""
    middle = mean(values) - published
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    ends = abs(middle - half), abs(middle + half)
    low = 0.0 if abs(middle) <= half else min(ends)
    return Held(f"{what} (mean {mean(values):.4g})", abs(middle), low, max(ends), limit)


def at_equal(rows: Iterable[Row], regime: str, rival: str, quality: str, limit: float) -> Held:
    """Our replica-seconds over a rival's where we are as good as it is as it comes."""
    row = next(r for r in rows if (r.regime, r.policy, r.level) == (regime, rival, "workflow"))
    equal = "workflow P95" if quality == "p95" else "attainment"
    what, found = f"{regime}: replica-seconds over {rival}'s at equal {equal}", saving(row, quality)
    if found is None:
        return Held(what, None, None, None, limit)
    return Held(what, found.ratio, found.low, found.high, limit, found.is_limit)


def short(row: Row, rows: Iterable[Row]) -> dict[str, Any]:
    """A row in a few columns."""
    kept = next(r for r in rows if (r.regime, r.policy, r.arm, r.level) == (row.regime, row.policy, row.arm, "call"))
    return {
        "regime": row.regime, "policy": row.policy, "p50_s": row.p50_s, "p95_s": row.p95_s, "p99_s": row.p99_s,
        "calls_in_slo": kept.slo_attainment, "mean_replicas": row.mean_replicas, "flaps": row.flaps,
    }  # fmt: skip

"""From the outcomes of single simulations to report rows: geometric means over seeds, ratios paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from swarmx.sim import compare
from swarmx.sim.report import NO_INTERVAL, Curve, Level, Ratio, Row
from swarmx.sim.suites.cells import REFERENCES, Cell
from swarmx.sim.suites.equal_cost import OURS, OURS_ARM, QUALITIES, Setting, at_equal, family
from swarmx.sim.suites.outcome import CURVE, PARTS, Outcome

Group = tuple[str, str, str, float, str, str | None]  # suite, workload, regime, load, policy, arm
Grouped = Mapping[Group, Sequence[Outcome]]
NAMED = {**REFERENCES, "hpa": "hpa", "queue_length": "queue_length", "keda_latency": "keda_latency"}  # scalers too
LIMIT = 2.0  # the rate limit: workflow P99 within this many times the P99 of the same workflows without any queue


def grouped(outcomes: Mapping[Cell, Outcome]) -> dict[Group, list[Outcome]]:
    """Outcomes of one row, in the order of seeds, for every row in the order of cells."""
    out: dict[Group, list[tuple[int, Outcome]]] = {}
    for cell, outcome in outcomes.items():
        key = (cell.suite, cell.workload, cell.regime, cell.load, cell.policy, cell.arm)
        out.setdefault(key, []).append((cell.seed, outcome))
    return {key: [o for _, o in sorted(values, key=lambda v: v[0])] for key, values in out.items()}


def rows_of(outcomes: Mapping[Cell, Outcome], no_queue_p99_s: Mapping[str, float]) -> list[Row]:
    """Two rows, call and workflow, per policy and arm.

    no_queue_p99_s : regime -> P99 of the workflows when every call starts at once on the fastest replica, alone
    """
    groups = grouped(outcomes)
    rates = max_loads(groups, no_queue_p99_s)
    levels: tuple[Level, ...] = ("call", "workflow")
    return [_row(group, groups, level, rates.get(_line(group))) for group in groups for level in levels]


def curves_of(outcomes: Mapping[Cell, Outcome]) -> list[Curve]:
    """Latency curve and time shares of every row, means over seeds (geometric for the curve)."""
    out = []
    for (suite, _, regime, load, policy, arm), found in grouped(outcomes).items():
        curve = [_geometric([o.curve_s[i] for o in found]) for i in range(len(CURVE))]
        parts = {part: float(np.mean([o.parts_s[i] for o in found])) for i, part in enumerate(PARTS)}
        out.append(Curve(suite, regime, load, policy, arm, list(CURVE), curve, parts))
    return out


def _row(group: Group, groups: Grouped, level: Level, most: float | None) -> Row:
    suite, workload, regime, load, policy, arm = group
    found = groups[group]
    n, p50, p95, p99, slo = zip(*(getattr(o, level) for o in found), strict=True)
    whole = level == "workflow"
    return Row(
        suite, workload, regime, load, policy, arm, level, int(sum(n)),
        _geometric(p50), _geometric(p95), _geometric(p99),
        ttft_p99_s=_geometric([o.ttft_p99_s for o in found]), slo_attainment=float(np.mean(slo)),
        max_rate_at_slo=most if whole else None,
        replica_seconds=float(np.mean([o.replica_seconds for o in found])), mean_replicas=_replicas(found),
        flaps=round(float(np.mean([o.flaps for o in found]))), vs=_ratios(group, groups, level),
        extra={**_extra(found), **_at_equal(group, groups)} if whole else {},
    )  # fmt: skip


def _at_equal(group: Group, groups: Grouped) -> dict[str, float]:
    """`tail_demand_at_equal_<quality>_<figure>` of a scaler's row, see `equal_cost`."""
    ours = [g for g in groups if g[:4] == group[:4] and family(g[4]) == OURS and g[5] == OURS_ARM]
    if len(ours) < 3 or group in ours:
        return {}
    curve = [Setting(g[4], groups[g]) for g in ours]
    rival = Setting(group[4], groups[group])
    return {
        f"{OURS}_at_equal_{quality}_{name}": value
        for quality in QUALITIES
        for name, value in at_equal(rival, curve, quality).items()
    }


def _extra(found: Sequence[Outcome]) -> dict[str, float]:
    parts = [dict(o.extra) for o in found]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: float(np.mean([part[name] for part in parts])) for name in names}


def _ratios(group: Group, groups: Grouped, level: Level) -> dict[str, Ratio]:
    out = {}
    for other in groups:
        if other[:4] != group[:4] or other[4] not in NAMED:
            continue
        mine, theirs = ([getattr(o, level) for o in groups[key]] for key in (group, other))
        p50, p95, p99 = (compare([m[i] for m in mine], [t[i] for t in theirs]) for i in (1, 2, 3))
        low, high = max(p99.low, NO_INTERVAL[0]), min(p99.high, NO_INTERVAL[1])
        out[NAMED[other[4]]] = Ratio(p50.ratio, p95.ratio, p99.ratio, (low, high))
    return out


def _line(group: Group) -> Group:
    return (*group[:3], 0.0, *group[4:])


def max_loads(groups: Grouped, no_queue_p99_s: Mapping[str, float]) -> dict[Group, float]:
    """Largest load whose workflow P99 keeps `LIMIT`, read off the sweep, log P99 linear between loads.

    0 when even the lowest load of the sweep breaks it; the highest load of the sweep when none does.
    """
    sweeps: dict[Group, list[tuple[float, float]]] = {}
    for group, found in groups.items():
        if group[2] in no_queue_p99_s:
            excess = _geometric([o.workflow[3] for o in found]) / (LIMIT * no_queue_p99_s[group[2]])
            sweeps.setdefault(_line(group), []).append((group[3], float(np.log(excess))))
    return {line: _crossing(sorted(points)) for line, points in sweeps.items() if len(points) > 1}


def _crossing(points: Sequence[tuple[float, float]]) -> float:
    """Where the line through (load, excess) first rises above zero."""
    if points[0][1] > 0:
        return 0.0
    for (load, excess), (next_load, next_excess) in pairwise(points):
        if next_excess > 0:
            return load + (next_load - load) * -excess / (next_excess - excess)
    return points[-1][0]


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-12)))))


def _replicas(found: Sequence[Outcome]) -> float:
    return float(np.mean([o.replicas for o in found]))

"""What one simulation says, in the few numbers that reports need; small enough to keep every one on disk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.presets import preset
from swarmx.sim import CallTable, percentiles, simulate
from swarmx.sim.accounts import accounts_of, figures_of
from swarmx.sim.suites.cells import VARIANTS, Cell, InWorlds, World
from swarmx.sim.suites.material import Material

Array = NDArray[np.float64]
PARTS = ("queue", "prefill", "decode", "tool")
CURVE = (
    0.01,
    0.05,
    *(i / 10 for i in range(1, 9)),
    0.85,
    0.9,
    0.925,
    0.95,
    0.97,
    0.98,
    0.985,
    0.99,
    0.995,
    0.999,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one cell; seconds. call and workflow: n, P50, P95, P99, share within the SLO.

    curve_s : workflow latency at the levels of `CURVE`; parts_s : mean seconds per workflow, as `PARTS`
    no_end : calls that ended in anything but "ok"; their workflows are in no percentile
    flaps : how often a scaler took back what it had just done; extra : figures of the suite's own
    """

    call: tuple[float, ...]
    workflow: tuple[float, ...]
    ttft_p99_s: float
    replica_seconds: float
    replicas: float
    no_end: int
    curve_s: tuple[float, ...]
    parts_s: tuple[float, ...]
    flaps: int = 0
    extra: tuple[tuple[str, float], ...] = ()


def simulated(suite: InWorlds, material: Material, cell: Cell) -> Outcome:
    """Run one cell in its world under the preset or variant that it names."""
    world = suite.world(material, cell)
    engines = None if world.engines is None else dict(world.engines)
    name, options = VARIANTS.get(cell.policy, (cell.policy, {}))
    policy = preset(name, cell.seed, engines, **options)
    table = simulate(world.workload, world.cluster, policy, world.arm, world.timing, seed=cell.seed)
    return outcome_of(table, world)


def outcome_of(table: CallTable, world: World) -> Outcome:
    """Reduce a finished run."""
    whole, calls = table.workflow_latency_s(), table.call_latency_s()
    span = float(np.nanmax(table.finished_s) - table.workflow_arrival_s[0])
    return Outcome(
        call=_figures(calls, world.call_slo_s[table.ok]),
        workflow=_figures(whole, world.slo_s[table.workflow_ok()]),
        ttft_p99_s=percentiles(table.ttft_s())[2],
        replica_seconds=span * len(table.cluster.replicas),
        replicas=len(table.cluster.replicas),
        no_end=int((~table.ok).sum()),
        curve_s=tuple(percentiles(whole, CURVE)),
        parts_s=critical_parts(table),
        extra=tuple(sorted(figures_of(accounts_of(table)).items())),
    )


def _figures(latency_s: Array, limit_s: Array) -> tuple[float, ...]:
    return (float(latency_s.size), *percentiles(latency_s), float(np.mean(latency_s <= limit_s)))


def critical_parts(table: CallTable) -> tuple[float, ...]:
    """Mean seconds per workflow on its critical path: waiting, prompt, answer, tools between calls.

    From the call that ended last back through, each time, the parent that ended last. The four add up to the mean
    workflow latency (of workflows that ended well).
    """
    sums, first = np.zeros(len(PARTS)), 0
    good = table.workflow_ok()
    for index, workflow in enumerate(table.workload.workflows):
        size = len(workflow.calls)
        ends = table.finished_s[first : first + size]
        place = int(np.argmax(ends)) if good[index] else -1
        while place >= 0:
            row, parents = first + place, workflow.calls[place].parents
            before = max(parents, key=lambda p: ends[p]) if parents else -1
            released = ends[before] if parents else workflow.arrival_s
            marks = (table.started_s[row], table.first_token_s[row], table.finished_s[row])
            sums += (marks[0] - table.arrival_s[row], marks[1] - marks[0], marks[2] - marks[1], 0.0)
            sums[3] += table.arrival_s[row] - released
            place = before
        first += size
    return tuple(float(x) for x in sums / max(int(good.sum()), 1))

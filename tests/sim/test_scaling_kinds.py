"""Device kinds with prices, and two pools under one budget, from the scaler to the replicas."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from swarmx.sim.scaling.agents import FAST, SLOW, two_kinds, two_phase
from swarmx.sim.scaling.scenario import ScalingRun, run

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def cheap_and_dear_changes() -> dict[float, ScalingRun]:
    return {cost: run(two_kinds(0, span_s=600.0, redeploy_cost=cost), "tail_demand") for cost in (0.0, 4.0)}


@pytest.mark.slow
def test_both_kinds_run_and_no_more_of_a_kind_than_there_are(cheap_and_dear_changes: dict[float, ScalingRun]) -> None:
    found = cheap_and_dear_changes[0.0]
    assert found.table.ok.all()
    kinds = Counter(unit.spec.device for unit in found.fleet.units.values())
    assert min(kinds[SLOW], kinds[FAST]) > 5
    for time_s in np.arange(0.0, found.seconds, 20.0):
        here = Counter(
            (u.spec.model, u.spec.device)
            for u in found.fleet.units.values()
            if u.ordered_s <= time_s and (u.ended_s is None or u.ended_s > time_s)
        )
        assert all(count <= 8 for (_, device), count in here.items() if device == SLOW)
    assert found.cost > found.replica_seconds  # fast ones cost 2.5


@pytest.mark.slow
def test_dear_changes_are_fewer(cheap_and_dear_changes: dict[float, ScalingRun]) -> None:
    free, dear = (len(cheap_and_dear_changes[cost].fleet.units) for cost in (0.0, 4.0))
    assert dear < free


@pytest.mark.slow
def test_machines_follow_the_fan_out_from_one_pool_to_the_other_and_the_tail_gets_shorter() -> None:
    ours, fixed = (run(two_phase(0), policy) for policy in ("tail_demand", "fixed"))
    assert ours.table.ok.all()
    shares = []
    half = ours.table.workload.workflows[300].arrival_s  # the first workflow of the second phase
    for low, high in ((0.25 * half, half), (half + 100.0, 1.5 * half)):
        targets = {p: [s.target for s in ours.steps if s.pool == p and low <= s.time_s < high] for p in "ab"}
        shares.append(np.mean(targets["b"]) / (np.mean(targets["a"]) + np.mean(targets["b"])))
    assert shares[1] > shares[0] + 0.05
    for time_s in {s.time_s for s in ours.steps}:
        assert sum(s.target for s in ours.steps if s.time_s == time_s) <= 48
    tails = [np.quantile(one.table.workflow_latency_s(), 0.95) for one in (ours, fixed)]
    assert tails[0] < 0.9 * tails[1]

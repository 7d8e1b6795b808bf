"""Starts follow a provider's limit: known, it refuses nothing; unknown, it is found, and refusals stay few."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from swarmx.engine import EngineConstants
from swarmx.pacing import Pacer, Pacing
from swarmx.presets import preset
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, simulate


def test_starts_are_spaced_as_the_bucket_says() -> None:
    pacer, now, times = Pacer(Pacing(2.0, 3.0)), 0.0, []
    for _ in range(10):
        times.append(now)
        now = max(now, pacer.started("r", now) or now)
    assert times[:3] == [0.0, 0.0, 0.0]
    assert [b - a for a, b in pairwise(times[2:])] == pytest.approx([0.5] * 7)


def test_pauses_double_until_a_call_ends_well_and_what_is_under_way_does_not_count() -> None:
    pacer, rng = Pacer(Pacing(first_s=1.0, most_s=8.0)), np.random.default_rng(0)
    lengths, now = [], 0.0
    for _ in range(6):
        until = pacer.refused("r", now, rng)
        assert until is not None and pacer.refused("r", now + 0.1, rng) is None
        lengths.append(until - now)
        now = until + 1.0
    for length, most in zip(lengths, [1, 2, 4, 8, 8, 8], strict=True):
        assert most / 2 <= length <= most
    pacer.ended("r")
    assert (pacer.refused("r", now, rng) or 0.0) - now <= 1.0


@pytest.mark.parametrize(("pacing", "most"), [(None, np.inf), (Pacing(), 0.2), (Pacing(1.0, 2.0), 0.02)])
def test_a_storm_of_refusals_is_bounded_and_every_call_is_served(pacing: Pacing | None, most: float) -> None:
    workload = Workload(tuple(SimWorkflow(f"w{i}", 0.02 * i, (SimCall("c", 2.0),)) for i in range(150)))
    provider = Cluster((ReplicaSpec("p", slots=8, accepts_per_s=1.0, accepts_burst=2.0),))
    scheduler = preset("central_fcfs", 0, {"default": EngineConstants(1.0)}, pacing=pacing)
    table = simulate(workload, provider, scheduler, timing=Timing(network_s=0.05))
    assert table.ok.all()
    refusals = float(table.attempts.mean()) - 1
    assert refusals <= most
    assert pacing is not None or refusals > 5


@pytest.mark.parametrize("wrong", [{"per_s": 0.0}, {"burst": 0.5}, {"first_s": 2.0, "most_s": 1.0}, {"window_s": 0.0}])
def test_a_pace_that_allows_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"pace|pauses"):
        Pacing(**wrong)

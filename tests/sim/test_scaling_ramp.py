"""The published ramp: the KEDA law attains what was published, with as many replicas."""

from __future__ import annotations

import pytest

from swarmx.sim.scaling.ramp import ramp
from swarmx.sim.scaling.scenario import run

PUBLISHED_ATTAINMENT, PUBLISHED_REPLICAS = 0.958, 5.93


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_keda_law_attains_what_was_published_with_as_many_replicas(seed: int) -> None:
    found = run(ramp(seed), "keda_latency", seed=seed)
    assert found.attainment == pytest.approx(PUBLISHED_ATTAINMENT, abs=0.01)
    assert found.mean_replicas == pytest.approx(PUBLISHED_REPLICAS, abs=0.1)
    assert found.table.ok.all()


@pytest.mark.slow
def test_demand_ahead_attains_more_than_the_law_with_fewer_replicas() -> None:
    scenario = ramp(0)
    law, ours = run(scenario, "keda_latency"), run(scenario, "tail_demand", options={"level": 0.97})
    assert ours.attainment >= law.attainment
    assert ours.replica_seconds <= 0.85 * law.replica_seconds

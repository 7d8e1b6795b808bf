"""What every placement keeps to, whatever it prefers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import ENGINE, chosen, cluster_of, costs, waiting

from swarmx.presets import PRESETS, preset
from swarmx.routing import PLACEMENTS
from swarmx.sim import ReplicaSpec, cluster, simulate
from swarmx.sim.arms import Oracle
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.synthetic import Sizes, agents
from swarmx.sim.workload import poisson

BLOCKS = tuple(range(7, 12))


@pytest.mark.parametrize("known", [True, False], ids=["fitted", "nothing learned"])
@pytest.mark.parametrize("name", PLACEMENTS)
def test_some_usable_replica_has_a_finite_cost_and_none_is_nan(name: str, known: bool) -> None:
    pool = cluster_of([1.0, 0.6, 0.6, 0.35], [3, 1, 0, 2], known=known)
    usable = np.array([True, False, True, True])
    for k in range(4):
        found = costs(PLACEMENTS[name](), waiting(f"c{k}", blocks=BLOCKS), pool, usable, seed=k)
        assert found.shape == (4,)
        assert not np.isnan(found).any()
        assert np.isfinite(found[usable]).any()


@pytest.mark.parametrize("name", PLACEMENTS)
def test_the_same_seed_makes_the_same_choice_and_the_call_is_left_alone(name: str) -> None:
    pool = cluster_of([1.0, 0.6, 0.35], [2, 0, 1])
    one, before = waiting(blocks=BLOCKS), pool.flight_table().copy()
    first, second = (costs(PLACEMENTS[name](), one, pool, seed=3) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(pool.flights) == len(before) == 3


# those that look at how full a replica is, before anything else
LOOK_AT_LOAD = (
    "least_outstanding", "least_outstanding_per_speed", "least_kv_tokens", "murakkab", "psc", "completion",
    "composed", "llmd_predicted", "cache_aware",
)  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(0, 12), min_size=2, max_size=6), name=st.sampled_from(LOOK_AT_LOAD))
def test_among_equal_replicas_an_emptier_one_is_never_passed_over(counts: list[int], name: str) -> None:
    pool = cluster_of([1.0] * len(counts), counts)
    assert counts[chosen(PLACEMENTS[name](), waiting(), pool)] == min(counts)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_serves_every_call_of_growing_prompts_on_mixed_engines(name: str) -> None:
    spec = ReplicaSpec("r", batched=True, slots=4, service=ENGINE, kv_capacity_tokens=40_000, block_tokens=64)
    pool = cluster(spec, [1.0, 0.6, 0.35])
    found = agents(8, Sizes(mean_tokens=60.0, cv=1.0, tool_s=0.5), np.random.default_rng(1))
    load = at_load(found, 0.7, capacity(pool, found), poisson, np.random.default_rng(2))
    table = simulate(load, pool, preset(name), Oracle())
    assert bool(table.ok.all())
    assert set(np.unique(table.replica)) <= {0, 1, 2}

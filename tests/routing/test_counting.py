"""Policies without prediction: turns, idle replicas, memory, probes."""

from __future__ import annotations

import numpy as np
import pytest
from small_cluster import ENGINE, chosen, cluster_of, costs, waiting

from swarmx.routing.join_idle import JoinIdle
from swarmx.routing.least_kv_tokens import LeastKvTokens
from swarmx.routing.prequal import Prequal, Probe, ProbePool, expected_latency_s
from swarmx.routing.weighted_round_robin import WeightedRoundRobin


def turns(speeds: list[float], count: int) -> list[int]:
    pool, found = cluster_of(speeds), []
    for step in range(count):
        pool.starts = step
        found.append(chosen(WeightedRoundRobin(), waiting(), pool))
    return found


def test_weighted_turns_are_in_proportion_to_speed_over_every_stretch() -> None:
    speeds = [1.0, 0.6, 0.35]
    found = np.array(turns(speeds, 400))
    for replica, speed in enumerate(speeds):
        ahead = np.cumsum(found == replica) - np.arange(1, 401) * speed / sum(speeds)
        # a golden-ratio sequence of n points is off by O(log n); 3 is more than it reaches below 10,000
        assert np.abs(ahead).max() < 3


def test_weighted_turns_of_a_replica_come_at_two_or_three_distances() -> None:
    places = np.flatnonzero(np.array(turns([1.0, 0.6, 0.35], 2000)) == 2)
    assert len(set(np.diff(places).tolist())) <= 3


def test_a_replica_that_is_not_usable_loses_its_turns_to_all_the_others() -> None:
    pool, found = cluster_of([1.0, 1.0, 1.0]), []
    for step in range(300):
        pool.starts = step
        found.append(chosen(WeightedRoundRobin(), waiting(), pool, [True, False, True]))
    counts = np.bincount(found, minlength=3)
    assert counts[1] == 0
    assert abs(int(counts[0]) - int(counts[2])) <= 3


def test_the_fastest_idle_replica_is_joined() -> None:
    assert chosen(JoinIdle(), waiting(), cluster_of([1.0, 0.6, 0.35], [1, 0, 0])) == 1


def test_when_nobody_is_idle_the_emptier_of_two_is_joined() -> None:
    pool = cluster_of([1.0, 1.0, 1.0], [5, 1, 3])
    found = {chosen(JoinIdle(), waiting(), pool, seed=seed) for seed in range(30)}
    assert found == {1, 2}  # the fullest loses against either


def test_idle_can_mean_that_a_share_of_the_slots_is_free() -> None:
    pool = cluster_of([1.0, 0.6], [2, 0], slots=8)
    assert chosen(JoinIdle(), waiting(), pool) == 1
    assert chosen(JoinIdle(idle_fill=0.25), waiting(), pool) == 0


def test_kv_tokens_count_the_prompt_and_half_of_the_answer_per_speed() -> None:
    pool = cluster_of([1.0, 0.5], [1, 0], tokens=100.0)
    # the book holds 200 + 50 for the old call; the new one needs 300 + 30
    found = costs(LeastKvTokens(), waiting(tokens=60.0, prompt=300), pool)
    assert found == pytest.approx([(250 + 330) / 1.0, 330 / 0.5])


def test_prompt_blocks_of_running_calls_need_no_further_memory() -> None:
    pool = cluster_of([1.0, 1.0])
    one = waiting("a", 100.0, 256, blocks=(1, 2, 3, 4))
    pool.start(one.call, one.lengths, 0, 0.0)
    found = costs(LeastKvTokens(), waiting("b", 100.0, 256, blocks=(1, 2, 3, 4)), pool)
    assert found == pytest.approx([256 + 50 + 50, 256 + 50])


def test_probes_expire_by_age_by_use_and_with_their_replica() -> None:
    pool = ProbePool([Probe("a", 0, 0.0), Probe("b", 0, 0.9, uses=2), Probe("c", 0, 0.9), Probe("gone", 0, 0.9)])
    pool.expire(1.2, 1.0, 2, {"a", "b", "c"})
    assert [p.replica for p in pool.probes] == ["c"]


def test_a_new_probe_replaces_that_of_its_replica_and_the_oldest_makes_room() -> None:
    pool = ProbePool()
    for name in "abca":
        pool.add(Probe(name, 0, 0.0), 3)
    assert [p.replica for p in pool.probes] == ["b", "c", "a"]
    pool.add(Probe("d", 0, 0.0), 3)
    assert [p.replica for p in pool.probes] == ["c", "a", "d"]


def test_the_oldest_and_the_worst_probe_are_removed_by_turns() -> None:
    probes = [Probe(name, 0, 0.0) for name in "abcde"]
    pool = ProbePool(list(probes))
    pool.thin(probes[2])
    pool.thin(probes[2])
    assert [p.replica for p in pool.probes] == ["b", "d", "e"]


def test_cold_replicas_go_by_latency_before_hot_ones_by_requests_in_flight() -> None:
    pool = cluster_of([1.0, 0.5, 1.0, 2.0])
    probes = [Probe("r0", 1, 0.0), Probe("r1", 0, 0.0), Probe("r2", 6, 0.0), Probe("r3", 9, 0.0)]
    policy = Prequal(hot=0.5)
    order = policy.ranking(probes, 100.0, pool)
    latency = expected_latency_s(pool, np.arange(4), np.array([1.0, 0.0, 6.0, 9.0]), 100.0)
    assert latency[0] < latency[1]
    assert order == [0, 1, 2, 3]  # 6 and 9 exceed the median of 3.5; r3 is the quickest but the fullest


def test_the_latency_at_requests_in_flight_is_that_of_the_service_model() -> None:
    pool = cluster_of([0.5], slots=4)
    found = expected_latency_s(pool, np.array([0, 0]), np.array([1.0, 7.0]), 100.0)
    slow = ENGINE.at_speed(0.5)
    assert found == pytest.approx([100 * slow.tau(2, 0), 100 * slow.tau(4, 0) * 2])


def test_the_first_call_is_random_and_its_probes_serve_the_second() -> None:
    pool = cluster_of([1.0, 1.0, 1.0], [4, 0, 4])
    policy, rng = Prequal(), np.random.default_rng(0)
    every = np.ones(3, dtype=np.bool_)
    policy.costs(waiting(), pool, every, 0.0, rng)
    assert len(policy.answers.probes) == 3
    assert int(np.argmin(policy.costs(waiting("b"), pool, every, 0.1, rng))) == 1
    assert np.isfinite(policy.costs(waiting("c"), pool, every, 9.0, rng)).all()  # all probes are too old: random again


def test_probes_are_reused_more_the_more_of_the_pool_they_cover() -> None:
    assert Prequal().reuse(12) == np.inf
    assert Prequal().reuse(100) == pytest.approx(2 / (0.84 * 3 - 1))
    assert Prequal(remove=0).reuse(10_000) == 1.0

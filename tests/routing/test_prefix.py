"""Policies that send equal prompts to equal replicas."""

from __future__ import annotations

import numpy as np
import pytest
from small_cluster import chosen, cluster_of, costs, waiting

from swarmx.routing.cache_aware import CacheAware
from swarmx.routing.prefix_affinity import PrefixAffinity
from swarmx.state import ClusterState

BLOCKS = (11, 12, 13, 14)  # 256 tokens


def warm(pool: ClusterState, replica: int, blocks: tuple[int, ...], name: str = "warm") -> None:
    """Put a prompt into a replica's cache and end the call."""
    one = waiting(name, prompt=64 * len(blocks), blocks=blocks)
    pool.start(one.call, one.lengths, replica, 0.0)
    pool.first_token(one.call.id, 0.1)
    pool.remove(one.call.id, 0.2, finished=True)


def test_the_longest_match_wins_and_ties_go_to_the_emptier() -> None:
    pool = cluster_of([1.0, 1.0, 1.0], [0, 3, 2])
    warm(pool, 1, BLOCKS, "a")
    warm(pool, 2, BLOCKS, "b")
    warm(pool, 0, BLOCKS[:2], "c")
    assert chosen(CacheAware(), waiting(prompt=256, blocks=BLOCKS), pool) == 2


def test_a_match_below_the_threshold_is_a_miss_and_goes_to_the_least_loaded() -> None:
    pool = cluster_of([1.0, 1.0], [2, 0])
    warm(pool, 0, BLOCKS[:1])
    assert chosen(CacheAware(), waiting(prompt=256, blocks=BLOCKS), pool) == 1
    assert chosen(CacheAware(match=0.2), waiting(prompt=256, blocks=BLOCKS), pool) == 0


@pytest.mark.parametrize(("counts", "wanted"), [((17, 0), 1), ((16, 0), 0), ((50, 34), 0), ((52, 34), 1)])
def test_out_of_balance_needs_both_the_gap_and_the_ratio(counts: tuple[int, int], wanted: int) -> None:
    pool = cluster_of([1.0, 1.0], counts, slots=64, kv=10_000_000)
    warm(pool, 0, BLOCKS)
    assert chosen(CacheAware(), waiting(prompt=256, blocks=BLOCKS), pool) == wanted


def test_a_miss_on_mixed_hardware_is_placed_by_calls_per_speed() -> None:
    pool = cluster_of([1.0, 0.25], [2, 0])
    assert chosen(CacheAware(), waiting(prompt=256, blocks=BLOCKS), pool) == 0


def test_equal_beginnings_meet_and_different_ones_spread_by_speed() -> None:
    pool = cluster_of([1.0, 1.0, 0.5])
    places = [chosen(PrefixAffinity(), waiting(f"c{k}", blocks=(k,)), pool) for k in range(1000)]
    again = [chosen(PrefixAffinity(key_tokens=64), waiting(f"d{k}", blocks=(7, 100 + k)), pool) for k in range(20)]
    assert len(set(again)) == 1
    # shares .4, .4, .2 of 1,000: three standard deviations are 0.046 and 0.038
    assert np.bincount(places) / 1000 == pytest.approx([0.4, 0.4, 0.2], abs=0.046)


def test_losing_a_replica_moves_only_its_own_keys() -> None:
    four, three = cluster_of([1.0] * 4), cluster_of([1.0] * 3)
    for k in range(200):
        one = waiting(f"c{k}", blocks=(k,))
        before, after = chosen(PrefixAffinity(), one, four), chosen(PrefixAffinity(), one, three)
        assert before in (after, 3)


def test_no_replica_is_given_more_than_its_bounded_share() -> None:
    pool = cluster_of([1.0, 1.0, 1.0, 1.0], slots=64)
    for k in range(40):
        one = waiting(f"c{k}", blocks=BLOCKS)  # all alike: hashing alone would send them all to one place
        i = chosen(PrefixAffinity(), one, pool)
        pool.start(one.call, one.lengths, i, 0.0)
        counts = np.bincount([pool.index[f.replica] for f in pool.flights.values()], minlength=4)
        assert counts.max() <= np.ceil(1.25 * (k + 1) / 4)


def test_sessions_can_be_kept_together_whatever_they_begin_with() -> None:
    pool = cluster_of([1.0] * 8)
    by_session = PrefixAffinity(key="workflow")
    places = {chosen(by_session, waiting(f"c{k}", blocks=(k,), workflow="session"), pool) for k in range(20)}
    assert len(places) == 1


def test_when_all_are_full_the_first_of_the_order_still_takes_it() -> None:
    pool = cluster_of([1.0, 1.0], [3, 3])
    found = costs(PrefixAffinity(bound=0.5), waiting(blocks=BLOCKS), pool)
    assert np.isfinite(found).all()

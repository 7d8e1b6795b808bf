"""Policies that price a replica in predicted seconds, and the order that boosts without prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import ENGINE, chosen, cluster_of, costs, waiting

from swarmx.ordering import Asked
from swarmx.ordering.gamma_boost import GammaBoost, boost_s
from swarmx.quantiles import LEVELS
from swarmx.routing.composed import Composed
from swarmx.routing.llmd_predicted import LlmdPredicted
from swarmx.routing.psc import PredictedServiceCost


def test_psc_sums_predicted_means_and_works_on_all_slots_at_once() -> None:
    pool = cluster_of([1.0, 0.5], [2, 0], slots=2, tokens=80.0)
    found = costs(PredictedServiceCost(), waiting(tokens=50.0, prompt=100), pool)
    fast, slow = ENGINE, ENGINE.at_speed(0.5)
    assert found == pytest.approx([fast.tau(2, 0) * (160 / 2 + 50) + fast.p * 100, slow.tau(2, 0) * 50 + slow.p * 100])


def test_time_to_first_token_on_an_empty_replica_is_its_prefill() -> None:
    pool = cluster_of([1.0, 0.5])
    ttft, tpot, cached = LlmdPredicted().latencies(waiting(prompt=1000), pool, 0.0)
    assert ttft == pytest.approx([0.1, 0.2])
    assert tpot == pytest.approx([ENGINE.tau(1, 1000), ENGINE.tau(1, 1000) / 0.5])
    assert cached.tolist() == [0.0, 0.0]


def test_waiting_is_predicted_at_the_quantile_of_the_lengths() -> None:
    pool = cluster_of([1.0], [4], slots=4, tokens=100.0)
    pool.refresh(0.0)
    sure, _, _ = LlmdPredicted().latencies(waiting(prompt=0), pool, 0.0)
    wide, _, _ = LlmdPredicted().latencies(waiting(prompt=0, spread=1.0), pool, 0.0)
    # an exponential's 0.9 quantile is 2.30 times its mean; the grid's mean has 1 % of discretisation
    assert wide[0] / sure[0] == pytest.approx(np.log(10), rel=0.02)


def test_the_gate_keeps_those_with_the_prefix_unless_they_are_much_later() -> None:
    policy, every = LlmdPredicted(), np.ones(3, dtype=np.bool_)
    held = np.array([800.0, 900.0, 0.0])
    assert policy.gated(np.array([4.0, 6.0, 0.1]), held, 1000, every).tolist() == [True, True, False]
    assert policy.gated(np.array([6.0, 6.0, 0.1]), held, 1000, every).all()
    assert policy.gated(np.array([1.0, 1.0, 0.1]), held, 2000, every).all()


def test_those_that_keep_the_limits_go_first_and_a_few_calls_explore() -> None:
    policy = LlmdPredicted(ttft_s=1.0, tpot_s=0.1, explore=0.25)
    ttft, tpot, gate = np.array([0.9, 0.5, 1.1]), np.array([0.05, 0.2, 0.01]), np.ones(3, dtype=np.bool_)
    rng = np.random.default_rng(0)
    served = [np.isfinite(policy.scores(ttft, tpot, gate, rng)) for _ in range(2000)]
    explored = sum(bool(s[1] and s[2] and not s[0]) for s in served)
    kept = sum(bool(s[0] and not s[1] and not s[2]) for s in served)
    assert explored + kept == 2000
    assert explored / 2000 == pytest.approx(0.25, abs=0.03)  # three standard deviations


def test_packing_takes_the_least_room_that_still_keeps_the_limits() -> None:
    ttft, tpot, gate = np.array([0.9, 0.5, 1.1]), np.full(3, 0.01), np.ones(3, dtype=np.bool_)
    rng = np.random.default_rng(0)
    for pack, wanted in ((False, 1), (True, 0)):
        policy = LlmdPredicted(ttft_s=1.0, tpot_s=0.1, explore=0.0, pack=pack)
        assert int(np.argmin(policy.scores(ttft, tpot, gate, rng))) == wanted


def test_first_tokens_weigh_four_fifths_and_the_pace_one() -> None:
    ttft, tpot, gate = np.array([1.0, 0.5]), np.array([0.1, 0.2]), np.ones(2, dtype=np.bool_)
    found = LlmdPredicted().scores(ttft, tpot, gate, np.random.default_rng(0))
    assert found == pytest.approx([0.8 * 1.0 + 0.2 * 0.5, 0.8 * 0.5 + 0.2 * 1.0])


def test_the_composed_router_with_a_mean_agrees_for_every_composition() -> None:
    pool = cluster_of([1.0, 0.6], [1, 0])
    one = waiting(spread=0.5)
    together, apart = (costs(Composed(composition=how, functional="mean"), one, pool) for how in ("comonotone", 0.0))
    assert apart == pytest.approx(together, rel=0.02)  # convolving on 16 levels keeps the mean to 2 %


def test_only_the_drawn_candidates_of_the_composed_router_have_a_cost() -> None:
    pool = cluster_of([1.0] * 6, [3, 1, 4, 1, 5, 9])
    for seed in range(10):
        found = costs(Composed(candidates=2), waiting(), pool, seed=seed)
        assert np.isfinite(found).sum() == 2
    firsts = [chosen(Composed(candidates=1), waiting(), pool, seed=seed) for seed in range(300)]
    counts = np.bincount(firsts, minlength=6)
    assert counts[[1, 3]].min() > counts[5]  # cheap ones are drawn more often


def boost(seconds: float, gamma: float) -> float:
    return boost_s(np.full(LEVELS.size, seconds), gamma)


@given(st.floats(1e-3, 1e4), st.floats(1e-4, 10.0))
def test_the_boost_of_a_known_length_is_that_of_the_paper(seconds: float, gamma: float) -> None:
    wanted = -np.log(-np.expm1(-gamma * seconds)) / gamma
    assert boost(seconds, gamma) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@given(st.floats(1e-2, 1e3), st.floats(1.01, 10.0))
def test_shorter_calls_start_further_ahead(seconds: float, factor: float) -> None:
    assert boost(seconds, 0.1) >= boost(seconds * factor, 0.1) >= 0


def test_a_boost_never_overflows() -> None:
    assert boost(1e9, 10.0) == 0.0
    assert np.isfinite(boost(0.0, 1e-6))


def test_a_long_wait_beats_any_difference_of_boosts() -> None:
    order = GammaBoost()
    short, long = waiting("short", 10.0, 0), waiting("long", 1000.0, 0)
    asked = [Asked(w.call, w.prediction, w.lengths) for w in (short, long)]
    for one in asked * 10:
        order.arrived(one)
    ahead, behind = (order.key(one) for one in asked)  # both arrive at 0
    assert ahead < behind <= 0
    later = Asked(replace(short.call, arrival_s=behind - ahead + 1.0), short.prediction, short.lengths)
    assert order.key(later) > behind


def test_a_boost_needs_a_positive_decay() -> None:
    with pytest.raises(ValueError, match="positive"):
        GammaBoost(0.0)

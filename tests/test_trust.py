"""A predictor is listened to while it is not worse than the lengths observed anyway, and again once it is better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.trust import Trust
from swarmx.types import Prediction

PLAIN = Prediction(QuantileGrid(LEVELS, -100 * np.log(1 - LEVELS)), "per_type")


def play(trust: Trust, factor: float, calls: int, seed: int = 0) -> None:
    """Exponential lengths of mean 100, half of the calls four times as long as the others; the predictor knows which,
    up to a factor."""
    rng = np.random.default_rng(seed)
    for i in range(calls):
        mean = 40.0 if rng.random() < 0.5 else 160.0
        said = Prediction(QuantileGrid(LEVELS, -factor * mean * np.log(1 - LEVELS)))
        trust.asked(f"{seed}/{i}", said, PLAIN)
        trust.ended(f"{seed}/{i}", float(rng.exponential(mean)))


def test_a_calibrated_predictor_keeps_its_word() -> None:
    trust = Trust()
    play(trust, 1.0, 500)
    assert trust.holds
    assert trust.predictor_loss < trust.observed_loss


@pytest.mark.parametrize("factor", [10.0, 1e28, 0.1])
def test_a_biased_predictor_loses_it_within_some_dozen_calls(factor: float) -> None:
    trust = Trust()
    play(trust, factor, 60)
    assert not trust.holds
    assert trust.asked("x", PLAIN, PLAIN) is PLAIN


def test_before_anything_has_ended_it_is_listened_to() -> None:
    trust = Trust()
    play(trust, 10.0, trust.first - 1)
    assert trust.holds


@pytest.mark.parametrize("factor", [10.0, 1e28, 0.1])
def test_a_gross_bias_is_told_within_fifteen_calls(factor: float) -> None:
    for seed in range(10):
        trust = Trust()
        play(trust, factor, 15, seed)
        assert not trust.holds
        assert trust.reason


def test_a_good_predictor_keeps_its_word_while_little_is_known() -> None:
    """Of 40 runs of 30 calls the word may be lost for a moment in one or two: the losses of few calls are uncertain."""
    lost = 0
    for seed in range(40):
        trust = Trust()
        play(trust, 1.0, 30, seed)
        lost += trust.switches > 0
    assert lost <= 2


def test_an_inverted_order_costs_the_word() -> None:
    rng = np.random.default_rng(0)
    trust = Trust()
    for i in range(100):
        mean = 40.0 if i % 2 else 160.0
        said = Prediction(QuantileGrid(LEVELS, -(40.0 * 160.0 / mean) * np.log(1 - LEVELS)))
        trust.asked(str(i), said, PLAIN)
        trust.ended(str(i), float(rng.exponential(mean)))
    assert not trust.holds
    assert trust.rank_correlation is not None
    assert trust.rank_correlation < 0


def test_the_word_is_not_regained_until_the_loss_is_no_larger() -> None:
    """Hysteresis: a predictor between the two limits keeps its word when it has it, and does not get it back."""
    near = Prediction(QuantileGrid(LEVELS, PLAIN.tokens.values * 1.25))
    rng = np.random.default_rng(1)
    lengths = rng.exponential(100.0, 2000).tolist()

    def ended(trust: Trust, said: Prediction, some: list[float], start: int) -> None:
        for i, tokens in enumerate(some, start):
            trust.asked(str(i), said, PLAIN)
            trust.ended(str(i), tokens)

    keeps = Trust()
    ended(keeps, near, lengths, 0)
    assert keeps.observed_loss < keeps.predictor_loss < keeps.slack * keeps.observed_loss
    assert keeps.holds
    lost = Trust()
    ended(lost, Prediction(QuantileGrid(LEVELS, PLAIN.tokens.values * 10)), lengths[:50], 0)
    ended(lost, near, lengths, 50)
    assert not lost.holds
    assert lost.switches == 1


def test_a_new_model_version_is_heard_afresh() -> None:
    trust = Trust()
    play(trust, 10.0, 60)
    trust.asked("old", PLAIN, PLAIN)
    said = replace(PLAIN, model_version="b")
    assert trust.asked("new", said, PLAIN) is said
    assert trust.compared == 0
    trust.ended("old", 5.0)  # says nothing of the new one
    assert trust.compared == 0


def test_a_stale_predictor_is_not_listened_to() -> None:
    trust = Trust(stale_s=3600.0)
    old, young = replace(PLAIN, age_s=3601.0), replace(PLAIN, age_s=3599.0)
    plain = replace(PLAIN, source="pool_mean")
    assert trust.asked("a", old, plain) is plain
    assert trust.asked("b", young, plain) is young


def test_a_call_in_flight_is_told_what_counts_now() -> None:
    trust = Trust()
    said = Prediction(QuantileGrid.point(1e6))
    assert trust.asked("x", said, PLAIN) is said
    for i in range(trust.first):
        trust.asked(str(i), said, PLAIN)
        trust.ended(str(i), 10.0)
    assert trust.current("x", PLAIN) is PLAIN
    assert trust.current("0", PLAIN) is None


def test_a_predictor_that_is_good_again_is_listened_to_again() -> None:
    trust = Trust()
    play(trust, 1e28, 300)
    assert not trust.holds
    # a loss is capped at a hundred times the plain one and fades by 1/200 a call: log(100 / .1) * 200 = 1,400 calls
    play(trust, 1.0, 2000, seed=1)
    assert trust.holds


def test_calls_that_end_badly_leave_nothing_behind() -> None:
    trust = Trust(most=2)
    for name in "abc":
        trust.asked(name, PLAIN, PLAIN)
    trust.forget("b")
    trust.ended("a", 5.0)  # was pushed out by the third
    assert trust.compared == 0
    trust.ended("c", 5.0)
    assert trust.compared == 1

"""A predictor is listened to while it is not worse than the lengths observed anyway, and again once it is better."""

from __future__ import annotations

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


def test_before_there_is_enough_to_judge_it_is_listened_to() -> None:
    trust = Trust()
    play(trust, 10.0, 29)
    assert trust.holds


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

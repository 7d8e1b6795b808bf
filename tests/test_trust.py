"""A predictor is listened to once it is better than the lengths observed anyway, and while it is not worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.trust import Trust
from swarmx.types import Prediction

PLAIN = Prediction(QuantileGrid(LEVELS, -100 * np.log(1 - LEVELS)), "per_type")
WRONG = Prediction(QuantileGrid.point(1e6))


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
def test_one_that_is_biased_from_the_beginning_never_gets_its_word(factor: float) -> None:
    for seed in range(10):
        trust = Trust()
        play(trust, factor, 60, seed)
        assert (trust.holds, trust.switches) == (False, 1)
        assert trust.asked("x", WRONG, PLAIN) is PLAIN


@pytest.mark.parametrize(("factor", "calls"), [(10.0, 20), (1e28, 5), (0.1, 150)])
def test_one_that_turns_bad_loses_its_word(factor: float, calls: int) -> None:
    """Over-estimates cost much and are told soon; a loss of under-estimates is at most what was observed."""
    for seed in range(10):
        trust = Trust()
        play(trust, 1.0, 300, seed)
        assert trust.holds
        play(trust, factor, calls, seed + 100)
        assert not trust.holds
        assert trust.reason


def test_before_anything_has_ended_so_many_calls_go_by_its_word_on_credit() -> None:
    trust = Trust()
    told = [trust.asked(str(i), WRONG, PLAIN) for i in range(trust.credit + 5)]
    assert told == [WRONG] * trust.credit + [PLAIN] * 5
    assert trust.reason == "unproven"
    for i in range(trust.first):
        assert trust.current("9", PLAIN) is (WRONG if i < 10 else PLAIN)
        trust.asked(f"{i}, ended", WRONG, PLAIN)
        trust.ended(f"{i}, ended", 10.0)
    assert (trust.holds, trust.switches) == (False, 1)
    assert trust.current("9", PLAIN) is PLAIN  # in flight on credit, and looked at again


def test_the_truth_itself_is_listened_to_at_once() -> None:
    truth = replace(PLAIN, source="oracle")
    assert Trust().asked("x", truth, PLAIN) is truth


def test_a_good_predictor_has_its_word_within_fifty_calls() -> None:
    """It explains a third of the variance here, so its loss is .9 of that of the observed lengths, and few calls tell
    little: of 40 runs some four may take longer, or lose it again for a moment."""
    late = again = 0
    for seed in range(40):
        trust = Trust()
        play(trust, 1.0, 50, seed)
        late += not trust.holds
        again += trust.switches > 2
    assert late <= 6
    assert again <= 6


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


def test_the_word_is_not_gained_until_the_loss_is_smaller() -> None:
    """Hysteresis: a predictor between the two limits keeps its word when it has it, and does not get it otherwise."""
    near, poor = (Prediction(QuantileGrid(LEVELS, PLAIN.tokens.values * factor)) for factor in (1.15, 3.0))
    rng = np.random.default_rng(1)
    lengths = rng.exponential(100.0, 2000).tolist()

    def ended(trust: Trust, said: Prediction, some: list[float], start: int, plain: Prediction = PLAIN) -> None:
        for i, tokens in enumerate(some, start):
            trust.asked(str(i), said, plain)
            trust.ended(str(i), tokens)

    keeps = Trust()
    ended(keeps, near, lengths[:100], 0, poor)
    assert keeps.holds
    ended(keeps, near, lengths[100:], 100)
    assert keeps.observed_loss < keeps.predictor_loss < keeps.slack * keeps.observed_loss
    assert keeps.holds
    never = Trust()
    ended(never, WRONG, lengths[:50], 0)
    ended(never, near, lengths[50:], 50)
    assert (never.holds, never.switches) == (False, 1)


def test_a_new_model_version_is_measured_afresh_and_believed_as_the_former_was() -> None:
    for good in (True, False):
        trust = Trust()
        play(trust, 1.0 if good else 10.0, 300)
        trust.asked("old", PLAIN, PLAIN)
        said = replace(WRONG, model_version="b")
        assert trust.asked("new", said, PLAIN) is (said if good else PLAIN)
        assert trust.compared == 0
        trust.ended("old", 5.0)  # says nothing of the new one
        assert trust.compared == 0


def test_a_stale_predictor_is_not_listened_to() -> None:
    trust = Trust(stale_s=3600.0, holds=True)
    old, young = replace(PLAIN, age_s=3601.0), replace(PLAIN, age_s=3599.0)
    plain = replace(PLAIN, source="pool_mean")
    assert trust.asked("a", old, plain) is plain
    assert trust.asked("b", young, plain) is young


def test_a_call_in_flight_is_told_what_counts_now() -> None:
    trust = Trust(holds=True)
    assert trust.asked("x", WRONG, PLAIN) is WRONG
    for i in range(trust.first):
        trust.asked(str(i), WRONG, PLAIN)
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

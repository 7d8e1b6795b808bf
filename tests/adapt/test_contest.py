"""The contest errs as rarely as it says, however often one looks; probation sends a worse model back."""

from __future__ import annotations

import numpy as np
import pytest

from swarmx.adapt.contest import Contest, Probation
from swarmx.quantiles import LEVELS, QuantileGrid

NORMAL = QuantileGrid.of_samples(np.random.default_rng(0).lognormal(4, 0.5, 200_000)).values


def contest(challenger: float, truth: float, seed: int, champion: float = 1.0, most: int = 400) -> Contest:
    """Two fixed grids, scaled; lengths drawn from a third scale; looked at after every record."""
    rng = np.random.default_rng(seed)
    own, other = NORMAL * champion, NORMAL * challenger
    found = Contest(alpha=0.05, most=most)
    while found.verdict() == "undecided":
        found.add(own, other, (own, other), truth * float(rng.lognormal(4, 0.5)))
    return found


def test_a_better_challenger_is_promoted_soon() -> None:
    found = [contest(2.0, 2.0, seed) for seed in range(20)]
    assert all(one.verdict() == "promote" for one in found)
    assert np.median([one.records for one in found]) < 100


def test_a_challenger_that_is_worse_is_rejected_before_the_limit() -> None:
    found = [contest(2.0, 1.0, seed) for seed in range(20)]
    assert all(one.verdict() == "reject" for one in found)
    assert np.median([one.records for one in found]) < 200


@pytest.mark.parametrize("slightly", [1.0, 1.1, 0.9])
def test_looking_after_every_record_promotes_no_more_often_than_alpha(slightly: float) -> None:
    """100 contests of a challenger that is no better: at alpha 0.05 more than 12 promotions have a chance below 1 %."""
    promoted = sum(contest(slightly, 1.0, seed, most=200).verdict() == "promote" for seed in range(100))
    assert promoted <= 12


def test_a_challenger_whose_corrected_predictions_serve_worse_is_not_promoted() -> None:
    rng = np.random.default_rng(3)
    found = Contest(most=300)
    for _ in range(300):
        tokens = 2 * float(rng.lognormal(4, 0.5))
        found.add(NORMAL, NORMAL * 2, (NORMAL * 2, NORMAL * 4), tokens)  # raw better, served twice as far off
    assert found.verdict() == "reject"


def test_a_challenger_that_covers_too_little_is_not_promoted() -> None:
    narrow = np.median(NORMAL) + 0.3 * (NORMAL - np.median(NORMAL))
    rng, found = np.random.default_rng(4), Contest(most=10_000)
    for _ in range(200):
        found.add(NORMAL * 8, narrow, (NORMAL * 8, narrow), float(rng.lognormal(4, 0.5)))
    assert found.better.log > 10
    assert not found.coverage_holds()
    assert found.verdict() == "undecided"


def test_the_report_says_how_both_did() -> None:
    report = contest(2.0, 2.0, 1).report()
    assert report["loss"]["challenger"] < report["loss"]["champion"]
    assert set(report["coverage"]["challenger"]) == {"0.5", "0.9", "0.95", "0.99"}


def test_probation_rolls_a_worse_model_back_and_keeps_an_equal_one() -> None:
    rng = np.random.default_rng(5)
    worse, equal = Probation(window=100), Probation(window=100)
    for _ in range(100):
        tokens = float(rng.lognormal(4, 0.5))
        if worse.verdict() == "undecided":
            worse.add(NORMAL * 2, NORMAL, tokens)
        equal.add(NORMAL, NORMAL, tokens)
    assert worse.verdict() == "roll_back"
    assert worse.records < 100
    assert equal.verdict() == "keep"


def test_grids_have_the_levels_of_every_prediction() -> None:
    assert NORMAL.shape == LEVELS.shape

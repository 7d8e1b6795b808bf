"""Online calibration: coverage comes back after a shift, nothing is lost while there is none."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.predict.online import OnlineCalibration
from swarmx.quantiles import LEVELS, QuantileGrid, pinball_loss

NORMAL = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
SIGMA = 0.7


def play(
    calibration: OnlineCalibration, seed: int, calls: int, scale: float = 1.0, spread: float = 1.0
) -> tuple[np.ndarray, float]:
    """(share at or below each corrected level, mean pinball loss) of lognormal calls against grids that think scale
    and spread are 1."""
    rng = np.random.default_rng(seed)
    below, loss = np.zeros(len(LEVELS)), 0.0
    for _ in range(calls):
        middle = math.exp(rng.normal(5, 0.6))
        grid = QuantileGrid(LEVELS, middle * np.exp(SIGMA * NORMAL))
        observed = scale * middle * math.exp(spread * SIGMA * rng.normal())
        corrected = calibration.corrected(grid, "a")
        below += observed <= corrected.values
        loss += float(pinball_loss(corrected, observed).mean()) / middle
        calibration.observe("a", grid, observed)
    return below / calls, loss / calls


def interval(calls: int, sd: float = 3.3) -> np.ndarray:
    """Half width of a binomial interval; 3.3 sd at each of 16 levels is about 1.5 % over all of them."""
    return np.asarray(sd * np.sqrt(LEVELS * (1 - LEVELS) / calls) + 1 / calls)


@pytest.mark.parametrize("scale", [2.0, 0.5, 10.0])
def test_coverage_returns_at_every_level_within_500_records_of_a_shift(scale: float) -> None:
    calibration = OnlineCalibration()
    play(calibration, 0, 500)
    play(calibration, 1, 500, scale)
    below, _ = play(calibration, 2, 600, scale)
    # what was learned from up to 400 records is uncertain too: the variances add
    assert np.all(np.abs(below - LEVELS) <= interval(600) * math.sqrt(1 + 600 / 400))
    assert calibration.factors()["a"] == pytest.approx(scale, rel=0.5)


@pytest.mark.parametrize("spread", [1.6, 0.6])
def test_a_changed_spread_is_mended_too(spread: float) -> None:
    calibration = OnlineCalibration()
    play(calibration, 0, 300)
    play(calibration, 1, 900, spread=spread)
    below, _ = play(calibration, 2, 600, spread=spread)
    assert np.all(np.abs(below - LEVELS) <= interval(600) * math.sqrt(1 + 600 / 400) + 0.02)


def test_a_calibrated_predictor_is_left_alone() -> None:
    below, loss = play(OnlineCalibration(), 3, 1500)
    plain = OnlineCalibration(patience=1e300, prior=1e12)  # never corrects
    same, plain_loss = play(plain, 3, 1500)
    assert np.all(np.abs(below - LEVELS) <= interval(1500))
    assert np.all(np.abs(below - same) <= 0.03)
    assert loss <= 1.01 * plain_loss


def test_unknown_groups_and_a_reset_give_the_grid_itself() -> None:
    calibration = OnlineCalibration()
    grid = QuantileGrid(LEVELS, 100 * np.exp(NORMAL))
    assert calibration.corrected(grid, "b") is grid
    play(calibration, 0, 100, 3.0)
    assert calibration.corrected(grid, "a") is not grid
    calibration.reset()
    assert calibration.corrected(grid, "a") is grid


def test_the_least_recent_groups_are_forgotten() -> None:
    calibration = OnlineCalibration(most_groups=2)
    grid = QuantileGrid.point(10.0)
    for group in ("a", "b", "a", "c"):
        calibration.observe(group, grid, 10.0)
    assert set(calibration.factors()) == {"a", "c"}


VALUES = st.lists(st.floats(-1e308, 1e308), min_size=len(LEVELS), max_size=len(LEVELS)).map(sorted)
OBSERVED = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, OBSERVED)
def test_any_input_gives_a_finite_grid_that_does_not_decrease(
    said: list[float], asked: list[float], observed: list[float]
) -> None:
    calibration = OnlineCalibration(patience=10.0)  # changes its mind often
    grid = QuantileGrid(LEVELS, np.array(said))
    for x in observed:
        calibration.observe("a", grid, x)
    corrected = calibration.corrected(QuantileGrid(LEVELS, np.array(asked)), "a")  # QuantileGrid itself checks both
    assert np.all(np.isfinite(corrected.values))

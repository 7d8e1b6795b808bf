"""Seasons of arrivals: exact where the season is, cut where it is not to be believed, absent unless asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.scaling.seasonal import MOST, Season, fit_season
from swarmx.types import CallRecord

EDGES = windows_to(60.0, 6)


def test_the_mean_rate_between_two_times_is_that_of_the_bins_between() -> None:
    season = Season(np.array([1.0, 3.0]), 20.0)
    assert season.between(0.0, 20.0) == pytest.approx(2.0)
    assert season.between(5.0, 15.0) == pytest.approx(2.0)
    assert season.between(7.5, 12.5) == pytest.approx(2.0)
    assert season.between(30.0, 40.0) == pytest.approx(3.0)
    assert season.between(-10.0, 0.0) == pytest.approx(3.0)  # before the start, the season was the same


def test_a_trend_is_the_coming_rate_over_the_recent_one_and_is_cut() -> None:
    season = Season(np.array([1.0, 1.0, 2.0, 2.0]), 240.0)
    assert season.trend(120.0, 60.0, EDGES) == pytest.approx(2.0)
    assert season.trend(60.0, 60.0, EDGES) == pytest.approx(1.0)
    steep = Season(np.array([0.001, 10.0]), 120.0)
    assert season.trend(0.0, 60.0, EDGES)[-1] == pytest.approx(0.5)
    assert steep.trend(60.0, 60.0, EDGES).max() == MOST
    assert Season(np.array([0.0, 1.0]), 120.0).trend(60.0, 60.0, EDGES) == pytest.approx(1.0)


def test_a_fitted_season_is_the_one_that_the_counts_were_drawn_from() -> None:
    pytest.importorskip("statsmodels")
    truth = 50.0 * (1.2 + np.sin(2 * np.pi * np.arange(24) / 24))
    counts = np.random.default_rng(0).poisson(np.tile(truth, 10))
    season = fit_season(counts, 24 * 60.0, 24)
    # smoothing a season by 0.2 averages some nine of them: 60 / 9 leaves a standard deviation of 2.6 at the mean count
    assert season.rates * 60.0 == pytest.approx(truth, abs=4 * 2.6)
    cut = fit_season(counts[: 24 * 9 + 6], 24 * 60.0, 24)  # the log ends within a season: bins keep their places
    assert cut.rates * 60.0 == pytest.approx(truth, abs=4 * 2.6)


def test_too_short_a_log_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 48"):
        fit_season(np.ones(47), 86400.0, 24)


def test_a_season_scales_the_arrivals_of_the_book_and_nothing_else() -> None:
    record = CallRecord("x", "a", 0.0, "ok", "w", None, type="t")
    profiles = fit_profiles([replace(record, dispatched_s=0.0, finished_s=5.0)], EDGES)
    plain, rising = LiveWork(profiles), LiveWork(profiles, season=Season(np.array([1.0, 2.0]), 240.0))
    for live in (plain, rising):
        for i in range(60):
            live.arrive(f"x{i}", "a", "t", 60.0 + i, is_first=True)
    before, after = (live.demands(120.0)["a"] for live in (plain, rising))
    assert after.mean["arrivals"] == pytest.approx(2 * before.mean["arrivals"])
    assert after.mean["backlog"] == pytest.approx(before.mean["backlog"])

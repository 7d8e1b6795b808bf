"""Costs at equal quality: exact on curves that are known, honest where a curve does not reach."""

from __future__ import annotations

import numpy as np
import pytest

from swarmx.sim.suites.equal_cost import Setting, at_equal
from swarmx.sim.suites.outcome import Outcome


def outcome(p95_s: float, cost: float, kept: float = 0.9) -> Outcome:
    figures = (100.0, p95_s / 2, p95_s, 2 * p95_s, kept)
    return Outcome(figures, figures, 1.0, cost, 1.0, 0, (), ())


def setting(name: str, p95_s: float, cost: float, noise: float = 0.0, seeds: int = 8) -> Setting:
    """One whose seeds scatter around the given figures."""
    draws = np.random.default_rng(0).standard_normal(seeds) * noise
    return Setting(name, [outcome(p95_s * np.exp(d), cost * np.exp(d)) for d in draws])


CURVE = [setting(f"tail_demand({i})", 80.0 / 2**i, 100.0 * 2**i, 0.1) for i in range(4)]  # P95 x cost = 8,000


def test_the_cost_at_the_rival_s_latency_is_read_between_two_settings() -> None:
    found = at_equal(setting("hpa", 30.0, 400.0, 0.1), CURVE, "p95")
    assert found["ratio"] == pytest.approx(8000 / 30 / 400)
    assert found["limit"] == 0.0
    # all seeds scatter alike, so that nothing is left of it in the ratio: log cost and log P95 both carry it
    assert found["low"] <= found["ratio"] <= found["high"]
    assert found["high"] / found["low"] < 1.2


def test_a_rival_that_is_slower_than_the_cheapest_setting_gives_an_upper_limit() -> None:
    found = at_equal(setting("hpa", 200.0, 400.0, 0.1), CURVE, "p95")
    assert found["ratio"] == pytest.approx(100 / 400)
    assert found["limit"] == 1.0


def test_a_rival_that_no_setting_reaches_has_no_figure() -> None:
    assert at_equal(setting("hpa", 5.0, 400.0), CURVE, "p95") == {}


def test_an_interval_whose_upper_end_is_not_reached_has_none() -> None:
    found = at_equal(setting("hpa", 10.1, 400.0, 0.0), [setting("tail_demand(0)", 10.0, 400.0, 0.5)] * 3, "p95")
    assert "ratio" in found or found == {}
    assert "high" not in found


def test_settings_that_cost_more_and_serve_worse_are_not_on_the_curve() -> None:
    worse = setting("tail_demand(bad)", 70.0, 150.0)
    rival = setting("hpa", 60.0, 400.0)
    plain = [setting(f"tail_demand({i})", 80.0 / 2**i, 100.0 * 2**i) for i in range(4)]
    dominated = setting("tail_demand(worse)", 90.0, 120.0)
    assert at_equal(rival, [*plain, dominated], "p95") == at_equal(rival, plain, "p95")
    assert at_equal(rival, [*plain, worse], "p95")["ratio"] >= at_equal(rival, plain, "p95")["ratio"]

"""Laws of quantile grids."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.quantiles import LEVELS, QuantileGrid, compose, condition_on_age, pinball_loss, tail_cost


def grids(low: float = 0.0, high: float = 1e4) -> st.SearchStrategy[QuantileGrid]:
    values = st.lists(st.floats(low, high), min_size=LEVELS.size, max_size=LEVELS.size)
    return values.map(lambda v: QuantileGrid(LEVELS, np.sort(np.array(v))))


def lognormals() -> st.SearchStrategy[QuantileGrid]:
    return st.tuples(st.floats(0, 6), st.floats(0.05, 1.5)).map(
        lambda p: QuantileGrid(LEVELS, np.exp([NormalDist(*p).inv_cdf(level) for level in LEVELS]))
    )


@pytest.mark.parametrize(
    ("levels", "values", "message"),
    [
        ([0.5, 0.4], [1, 2], "increase strictly"),
        ([0.0, 0.5], [1, 2], "increase strictly"),
        ([0.5, 0.9], [2, 1], "not decrease"),
        ([0.5, 0.9], [1, np.nan], "finite"),
        ([0.5, 0.9], [1, 2, 3], "one entry per level"),
    ],
)
def test_a_broken_promise_is_refused(levels: list[float], values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileGrid(np.array(levels), np.array(values))


def test_mean_and_sd_of_a_lognormal_sample_agree_with_the_sample() -> None:
    sample = np.random.default_rng(1).lognormal(3, 0.8, 200_000)
    grid = QuantileGrid.of_samples(sample)
    assert grid.mean() == pytest.approx(sample.mean(), rel=0.02)  # piecewise-linear bias, far above sampling error
    assert grid.sd() == pytest.approx(sample.std(), rel=0.05)
    assert tail_cost(grid, "cvar", 0.95) == pytest.approx(sample[sample > np.quantile(sample, 0.95)].mean(), rel=0.03)


@given(grids(), grids())
def test_composing_commutes(a: QuantileGrid, b: QuantileGrid) -> None:
    for how in ("comonotone", "independent", 0.3):
        np.testing.assert_allclose(compose(a, b, how).values, compose(b, a, how).values, rtol=1e-9, atol=1e-9)


@given(grids())
def test_adding_zero_comonotonely_changes_nothing(a: QuantileGrid) -> None:
    before = a.values.copy()
    np.testing.assert_array_equal(compose(a, QuantileGrid.point(0.0), "comonotone").values, a.values)
    np.testing.assert_array_equal(a.values, before)


@given(lognormals(), lognormals())
def test_comonotone_tails_are_no_lighter_than_independent_ones(a: QuantileGrid, b: QuantileGrid) -> None:
    together, apart = compose(a, b, "comonotone"), compose(a, b, "independent")
    spread = (a.values[-1] - a.values[0]) + (b.values[-1] - b.values[0])
    assert tail_cost(together, "cvar", 0.9) >= tail_cost(apart, "cvar", 0.9) - 0.03 * spread - 1e-9


@given(grids(), grids())
def test_the_mean_of_a_sum_is_the_sum_of_the_means(a: QuantileGrid, b: QuantileGrid) -> None:
    for how, tolerance in (("comonotone", 1e-9), ("independent", 0.03)):
        total = compose(a, b, how).mean()
        scale = a.values[-1] + b.values[-1] + 1e-9
        assert abs(total - a.mean() - b.mean()) <= tolerance * scale + 1e-9


@given(grids(1.0), st.floats(0, 2e4))
def test_what_is_left_is_never_negative_and_nothing_is_left_of_age_zero(grid: QuantileGrid, age: float) -> None:
    left = condition_on_age(grid, age)
    assert np.all(left.values >= 0)
    np.testing.assert_allclose(condition_on_age(grid, 0.0).values, grid.values, rtol=1e-9, atol=1e-9)


def test_an_exponential_forgets_its_age() -> None:
    grid = QuantileGrid.of_samples(np.random.default_rng(2).exponential(10.0, 400_000))
    for age in (5.0, 20.0, 60.0):
        assert condition_on_age(grid, age).mean() == pytest.approx(10.0, rel=0.06)


@given(grids(), st.floats(0, 1e4))
def test_pinball_loss_is_zero_only_where_the_quantile_was_hit(grid: QuantileGrid, observed: float) -> None:
    loss = pinball_loss(grid, observed)
    assert loss.shape == LEVELS.shape
    assert np.all(loss >= 0)
    np.testing.assert_array_equal(loss == 0, grid.values == observed)


@given(grids())
def test_tail_costs_are_ordered(grid: QuantileGrid) -> None:
    mean, quantile, cvar = (tail_cost(grid, kind, 0.95) for kind in ("mean", "quantile", "cvar"))
    assert cvar >= quantile - 1e-9
    assert cvar >= mean - 1e-6 * abs(mean) - 1e-9


def test_an_unknown_tail_cost_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="choose mean, quantile, cvar, overshoot, mean_sd"):
        tail_cost(QuantileGrid.point(1.0), "worst")

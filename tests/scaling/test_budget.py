"""Budgets: marginal gain is optimal where the integer program says so, and moves cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.scaling.budget import DeviceKind, PoolNeed, by_integer_program, by_marginal_gain


def need(pool: str, mean: float, wanted: int, minimum: int = 0, **more: object) -> PoolNeed:
    busy = np.quantile(np.random.default_rng(3).gamma(4.0, mean / 4.0, 2000), (np.arange(20) + 0.5) / 20)
    return PoolNeed(pool, wanted, minimum, busy, **more)  # type: ignore[arg-type]


def shortage(needs: list[PoolNeed], counts: dict[str, int]) -> float:
    return sum(float(n.shortage(np.array([counts[n.pool] * n.kinds[0].slots]))[0]) for n in needs)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.5, 8.0), st.integers(0, 2)), min_size=2, max_size=3), st.integers(6, 12))
def test_marginal_gain_leaves_the_least_shortage_of_all_allocations(
    pools: list[tuple[float, int]], budget: int
) -> None:
    needs = [need(f"p{i}", mean, 12, low) for i, (mean, low) in enumerate(pools)]
    minima = sum(n.minimum for n in needs)
    given_ = by_marginal_gain(needs, budget)
    assert sum(given_.values()) <= max(budget, minima)
    best = min(
        shortage(needs, dict(zip([n.pool for n in needs], counts, strict=True)))
        for counts in product(*(range(n.minimum, 13) for n in needs))
        if sum(counts) <= budget
    )
    assert shortage(needs, given_) <= best + 1e-4


def test_nobody_gets_more_than_it_wants_and_minima_come_first() -> None:
    needs = [need("small", 1.0, 3, 1), need("large", 50.0, 60, 2)]
    given_ = by_marginal_gain(needs, 20)
    assert given_["small"] >= 1
    assert given_ == {"small": given_["small"], "large": 20 - given_["small"]}
    assert by_marginal_gain(needs, 1000) == {"small": 3, "large": 60}


def test_equal_need_is_shared_out_evenly() -> None:
    needs = [need("a", 100.0, 40), need("b", 100.0, 40)]
    given_ = by_marginal_gain(needs, 30)
    assert abs(given_["a"] - given_["b"]) <= 1


def test_a_replica_moves_only_for_enough_gain() -> None:
    needs = [need("a", 10.0, 20, here={"default": 12}), need("b", 10.5, 20, here={"default": 8})]
    assert by_marginal_gain(needs, 20, move_gain=0.5) == {"a": 12, "b": 8}
    assert by_marginal_gain(needs, 20)["b"] >= 10


def test_a_replica_that_is_hardly_needed_moves_in_spite_of_that() -> None:
    needs = [need("idle", 1.0, 20, here={"default": 10}), need("short", 16.0, 30, here={"default": 10})]
    given_ = by_marginal_gain(needs, 20, move_gain=0.6)
    assert given_["short"] >= 15
    assert given_["idle"] >= 1


def test_replicas_that_serve_now_stay_until_others_could_be_ready() -> None:
    calm, later = need("now", 1.0, 20, here={"default": 10}), need("later", 16.0, 30, here={"default": 10})
    busy = replace(calm, busy_now=np.full(20, 12.0))
    assert by_marginal_gain([busy, later], 20, move_gain=0.6)["now"] > by_marginal_gain([calm, later], 20, 0.6)["now"]


def test_the_integer_program_mixes_device_kinds_by_price_and_respects_what_exists() -> None:
    pytest.importorskip("scipy")
    kinds = (DeviceKind("big", 4.0, 3.0, 2.0, available=2), DeviceKind("small", 1.0, 1.0, 1.0))
    busy = np.full(20, 10.0)
    (counts,) = by_integer_program([PoolNeed("m", 10, 1, busy, kinds, wanted_slots=10.0)], 100.0).values()
    assert counts == {"big": 2, "small": 2}
    (few,) = by_integer_program([PoolNeed("m", 10, 1, busy, kinds, wanted_slots=10.0)], 4.0).values()
    assert 2 * few["big"] + few["small"] <= 4


def test_the_integer_program_agrees_with_marginal_gain_on_one_kind() -> None:
    pytest.importorskip("scipy")
    needs = [need("a", 6.0, 30), need("b", 2.0, 30), need("c", 9.0, 30)]
    solved = {pool: sum(counts.values()) for pool, counts in by_integer_program(needs, 14.0).items()}
    assert shortage(needs, solved) == pytest.approx(shortage(needs, by_marginal_gain(needs, 14)), rel=0.1, abs=1e-3)


def test_a_change_is_not_worth_more_than_it_costs() -> None:
    pytest.importorskip("scipy")
    here = {"default": 4}
    needs = [PoolNeed("m", 10, 0, np.full(20, 4.2), here=here, wanted_slots=4.2)]
    assert by_integer_program(needs, 10.0, redeploy_cost=5.0)["m"] == here
    assert by_integer_program(needs, 10.0, redeploy_cost=0.0)["m"] == {"default": 5}


def test_minima_that_do_not_fit_are_refused() -> None:
    pytest.importorskip("scipy")
    with pytest.raises(ValueError, match="meets the minima"):
        by_integer_program([PoolNeed("m", 10, 8, np.full(20, 4.0))], 4.0)


def test_the_integer_program_gives_what_is_wanted_and_not_what_demand_could_be() -> None:
    pytest.importorskip("scipy")
    busy = np.linspace(1.0, 100.0, 20)
    kinds = (DeviceKind("small", 1.0, 1.0), DeviceKind("big", 4.0, 3.0))
    (counts,) = by_integer_program([PoolNeed("m", 9, 0, busy, kinds, wanted_slots=9.0)], 1000.0).values()
    assert counts["small"] + 4 * counts["big"] == 9
    assert counts["big"] == 2  # three quarters of the price of four small ones

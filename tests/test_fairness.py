"""Laws of the accounts, of Jain's index and of ideal fair sharing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.fairness import Demand, Ledger, ideal_finish_s, jain, worst_delay_s

AMOUNTS = st.lists(st.floats(0.1, 100), min_size=1, max_size=12)


@given(AMOUNTS, st.floats(0.1, 10))
def test_jain_lies_between_one_over_n_and_one_and_ignores_scale(values: list[float], factor: float) -> None:
    assert 1 / len(values) - 1e-12 <= jain(values) <= 1 + 1e-12
    assert jain([factor * v for v in values]) == pytest.approx(jain(values))


def test_jain_of_equals_is_one_and_of_a_monopoly_one_over_n() -> None:
    assert jain([3.0] * 5) == pytest.approx(1.0)
    assert jain([7.0, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([]) == 1.0


@st.composite
def demands(draw: st.DrawFn) -> list[Demand]:
    return [
        Demand(draw(st.floats(0, 50)), draw(st.floats(0.1, 30)), draw(st.sampled_from([1.0, 2.0, 4.0])))
        for _ in range(draw(st.integers(1, 12)))
    ]


@given(demands(), st.floats(0.5, 5))
def test_ideal_sharing_conserves_work_and_never_beats_the_whole_capacity(found: list[Demand], capacity: float) -> None:
    ends = ideal_finish_s(found, capacity)
    for demand, end in zip(found, ends, strict=True):
        assert end >= demand.arrival_s + demand.cost / capacity - 1e-6
    last = max(ends)
    first = min(d.arrival_s for d in found)
    assert sum(d.cost for d in found) <= (last - first) * capacity * (1 + 1e-9) + 1e-6


@given(demands())
def test_ideal_sharing_matches_a_step_by_step_simulation(found: list[Demand]) -> None:
    left = [d.cost for d in found]
    ends: list[float | None] = [None] * len(found)
    now = 0.0
    while any(end is None for end in ends):
        active = [i for i, d in enumerate(found) if ends[i] is None and d.arrival_s <= now + 1e-12]
        coming = [d.arrival_s for d in found if d.arrival_s > now + 1e-12]
        if not active:
            now = min(coming)
            continue
        weight = sum(found[i].weight for i in active)
        step = min(left[i] * weight / found[i].weight for i in active)
        if coming:
            step = min(step, min(coming) - now)
        now += step
        for i in active:
            left[i] -= step * found[i].weight / weight
            if left[i] <= 1e-9:
                ends[i] = now
    assert ideal_finish_s(found, 1.0) == pytest.approx(ends, rel=1e-6, abs=1e-6)


def test_worst_delay_is_the_largest_lateness_behind_the_ideal() -> None:
    found = [Demand(0.0, 4.0), Demand(0.0, 2.0)]
    assert ideal_finish_s(found, 1.0) == pytest.approx([6.0, 4.0])
    assert worst_delay_s(found, [4.0, 6.0], 1.0) == pytest.approx(2.0)


def test_shares_are_measured_against_weights() -> None:
    ledger = Ledger()
    for name, tokens in (("a", 100.0), ("b", 200.0), ("c", 400.0)):
        ledger[name].dispatch(1.0)
        ledger[name].finish(tokens, 2.0)
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    assert ledger.jain(weights) == pytest.approx(1.0)
    assert list(ledger.shares(weights).values()) == pytest.approx([1.0] * 3)
    assert ledger.jain() < 0.8
    assert ledger["a"].mean_wait_s == 1.0


def test_the_ledger_forgets_the_longest_unused_account_and_says_how_many() -> None:
    ledger = Ledger(limit=2)
    for name in ("a", "b", "a", "c"):
        ledger[name].dispatch(0.0)
    assert sorted(ledger.accounts()) == ["a", "c"]
    assert ledger.forgotten == 1

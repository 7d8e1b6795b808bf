"""Bounds: each does what it says, once, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.scaling import Bounds, Memory, PoolSample, Rate, ReplicaView, Want, bounded

AT_ONCE = Bounds(0, 100, down_delay_s=0.0, consolidate=None, zero_after_s=0.0)


def sample(at_s: float, ready: int, starting: int = 0, busy: float = 0.0) -> PoolSample:
    views = [ReplicaView(f"r{i}") for i in range(ready)]
    views += [ReplicaView(f"s{i}", "starting", ready_in_s=30.0) for i in range(starting)]
    running = min(busy, float(ready))
    return PoolSample("m", at_s, tuple(views), busy - running, running, 0.0, 0.0)


def targets(bounds: Bounds, course: list[tuple[float, int, int]]) -> list[int]:
    """Targets of (time, replicas, wish), with a memory that reaches back far enough."""
    memory = Memory()
    for before in range(-700, 0, 10):
        memory.history.add(sample(float(before), course[0][1]))
    found = []
    for at_s, ready, wish in course:
        seen = sample(at_s, ready, busy=0.5)
        memory.history.add(seen)
        found.append(bounded(Want(wish), seen, bounds, memory)[0])
    return found


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20), st.integers(20, 40))
def test_the_target_lies_within_minimum_and_maximum(ready: int, wish: int, low: int, high: int) -> None:
    bounds = replace(AT_ONCE, minimum=low, maximum=high)
    assert low <= targets(bounds, [(0.0, ready, wish)])[0] <= high


@given(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50)), st.booleans())
def test_whatever_is_wanted_a_missing_metric_moves_nothing(ready: int, wish: int | None, starting: bool) -> None:
    memory = Memory()
    seen = sample(0.0, ready, 2 * starting, busy=1.0)
    memory.history.add(seen)
    if wish is not None:
        bounded(Want(wish), seen, AT_ONCE, memory)
    later = sample(5.0, ready, 2 * starting, busy=1.0)
    memory.history.add(later)
    target, notes = bounded(None, later, AT_ONCE, memory)
    assert target == ready + 2 * starting
    assert any("missing" in note for note in notes)


def test_replicas_that_are_starting_count_so_that_nothing_is_ordered_twice() -> None:
    memory = Memory()
    seen = sample(0.0, 2, starting=3, busy=5.0)
    memory.history.add(seen)
    assert bounded(Want(5), seen, AT_ONCE, memory)[0] == 5


def test_a_rise_waits_for_its_delay() -> None:
    bounds = replace(AT_ONCE, up_delay_s=30.0)
    course = [(0.0, 2, 2), *((t, 2, 6) for t in (10.0, 20.0, 30.0, 40.0, 50.0))]
    assert targets(bounds, course) == [2, 2, 2, 2, 6, 6]


def test_a_fall_waits_until_nothing_higher_was_wanted_for_its_delay() -> None:
    bounds = replace(AT_ONCE, down_delay_s=30.0)
    course = [(0.0, 6, 6), (10.0, 6, 2), (20.0, 6, 4), (30.0, 6, 2), (40.0, 6, 2), (50.0, 4, 2), (60.0, 4, 2)]
    assert targets(bounds, course) == [6, 6, 6, 6, 4, 4, 2]


def test_steps_are_limited_per_period() -> None:
    bounds = replace(AT_ONCE, up=Rate(4, 60.0, 1.0), down=Rate(1, 120.0))
    assert targets(bounds, [(0.0, 3, 8), (10.0, 7, 8), (70.0, 7, 8)]) == [7, 7, 8]
    assert targets(bounds, [(0.0, 8, 3), (60.0, 7, 3), (130.0, 7, 3)]) == [7, 7, 6]


def test_small_changes_are_not_made() -> None:
    bounds = replace(AT_ONCE, tolerance=0.1)
    assert targets(bounds, [(0.0, 20, 21), (10.0, 20, 19), (20.0, 20, 23), (30.0, 20, 17)]) == [20, 20, 23, 17]


def test_what_n_hold_easily_and_n_minus_one_not_is_left_alone() -> None:
    memory = Memory()
    seen = sample(0.0, 2, busy=1.5)
    memory.history.add(seen)
    kept, notes = bounded(Want(1), seen, replace(AT_ONCE, consolidate=0.9), memory)
    assert kept == 2
    assert any("could not hold" in note for note in notes)
    assert bounded(Want(1), seen, AT_ONCE, memory)[0] == 1


def test_no_fall_so_soon_after_a_rise() -> None:
    bounds = replace(AT_ONCE, cool_down_s=60.0)
    assert targets(bounds, [(0.0, 2, 2), (10.0, 2, 5), (20.0, 5, 2), (60.0, 5, 2), (80.0, 5, 2)]) == [2, 5, 5, 5, 2]


def test_the_last_replica_stays_while_there_was_a_call_and_comes_back_with_one() -> None:
    bounds = replace(AT_ONCE, zero_after_s=60.0)
    memory = Memory()
    found = []
    for step in range(12):
        seen = sample(10.0 * step, 1 if not found else found[-1], busy=1.0 if step < 3 else 0.0)
        memory.history.add(seen)
        found.append(bounded(Want(0), seen, bounds, memory)[0])
    assert found[:8] == [1] * 8
    assert found[-1] == 0
    back = sample(130.0, 0, busy=1.0)
    memory.history.add(back)
    assert bounded(Want(0), back, bounds, memory)[0] == 1


def test_bounds_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="minimum <= maximum"):
        Bounds(5, 3)
    with pytest.raises(ValueError, match="must not be negative"):
        Bounds(down_delay_s=-1.0)

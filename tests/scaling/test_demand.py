"""Demand: learned averages equal what a log's workflows do, live work adds up, ages count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.quantiles import LEVELS
from swarmx.scaling.demand import demand_of_counts, grid_of_moments, quantile_of_moments
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.types import CallRecord

EDGES = windows_to(60.0, 6)


def record(
    call: str, model: str, start: float, length: float, parent: str | None = None, wait: float = 0.0
) -> CallRecord:
    """A call that waited in a queue before it was served."""
    return CallRecord(
        call, model, start - wait, "ok", "w", parent, type=call, dispatched_s=start, finished_s=start + length
    )


def plan_then_two_writers(wait: float = 0.0) -> list[CallRecord]:
    """plan for 10 s; 5 s later two writers of 20 s each, however long they queued."""
    gap = 15.0 + wait
    return [record("plan", "a", 0.0, 10.0), *(record(f"write{i}", "b", gap, 20.0, "plan", wait) for i in range(2))]


@pytest.mark.parametrize("wait", [0.0, 100.0])
def test_a_waiting_call_brings_its_own_work_and_that_of_its_children_when_nothing_queues(wait: float) -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(wait), EDGES))
    live.arrive("x", "a", "plan", 0.0, is_first=False)
    demands = live.demands(0.0)
    assert demands["a"].total == pytest.approx([10, 0, 0, 0, 0, 0])
    assert demands["b"].total == pytest.approx([0, 10, 20, 10, 0, 0])
    assert demands["b"].mean["downstream"].sum() == pytest.approx(40.0)


def test_a_running_call_has_only_its_rest_to_do_and_its_children_are_nearer() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES))
    live.arrive("x", "a", "plan", 0.0, is_first=False)
    live.started("x", 0.0)
    young, old = live.demands(0.0), live.demands(9.0)
    # ages are taken in bins of a tenth of the longest call and less, here 1.25 s: half a bin of error at most
    assert young["a"].total.sum() == pytest.approx(10.0, abs=0.7)
    assert old["a"].total.sum() == pytest.approx(1.0, abs=0.7)
    assert old["b"].total[0] == pytest.approx(2 * (10.0 - 6.0), abs=1.3)
    live.progressed("x", 0.0, 9.0)
    assert live.demands(9.0)["a"].total.sum() == pytest.approx(10.0, abs=0.7)


def test_what_has_ended_is_forgotten_and_what_waits_again_is_whole_again() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES))
    for name in ("x", "y", "z"):
        live.arrive(name, "a", "plan", 0.0, is_first=False)
        live.started(name, 0.0)
    live.ended("x")
    live.ended("never seen")
    live.waits("z")
    assert len(live) == 2
    assert live.demands(5.0)["a"].mean["backlog"].sum() == pytest.approx(10.0)


def test_arrivals_bring_the_work_of_whole_workflows_at_their_rate() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES), rate_s=100.0)
    for i in range(50):
        live.arrive(f"x{i}", "a", "plan", 2.0 * i, is_first=True)
        live.ended(f"x{i}")
    arrivals = live.demands(100.0)["a"].mean["arrivals"]
    # half a workflow a second with 10 s in `a` each: 5 slots once the first have run for 10 s
    assert arrivals[1:] / 10.0 == pytest.approx([5.0] * 5, rel=0.05)
    later = live.demands(100.0)["b"].mean["arrivals"] / 10.0
    assert later[0] == 0.0
    assert later[-1] == pytest.approx(20.0, rel=0.05)


def test_a_pool_without_room_causes_calls_elsewhere_no_faster_than_it_serves() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES))
    for i in range(100):
        live.arrive(f"x{i}", "a", "plan", 0.0, is_first=False)
    unhindered = live.demands(0.0)["b"].total
    throttled = live.demands(0.0, {"a": 2.0, "b": 50.0})["b"].total
    assert unhindered.max() == pytest.approx(100 * 20.0)
    # two slots serve one plan in 5 s, each of which brings two writers of 20 s: 8 slots in the end
    assert throttled[-1] / 10.0 == pytest.approx(8.0, rel=0.1)
    assert (np.diff(throttled) >= -1e-9).all()


def test_an_unknown_type_counts_as_its_model_s_average_and_an_unknown_model_not_at_all() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES))
    live.arrive("x", "b", "never seen", 0.0, is_first=False)
    live.arrive("y", "c", "plan", 0.0, is_first=False)
    assert len(live) == 1
    assert live.demands(0.0)["b"].total.sum() == pytest.approx(20.0)


def test_a_log_without_ended_calls_teaches_nothing() -> None:
    with pytest.raises(ValueError, match="ended well"):
        fit_profiles([CallRecord("x", "a", 0.0, "error")], EDGES)


@given(st.floats(0.01, 1e3), st.floats(0.0, 1e4), st.floats(1.0, 3.0))
def test_quantiles_rise_with_the_level_and_with_the_load(mean: float, variance: float, more: float) -> None:
    grid = grid_of_moments(np.array(mean), np.array(variance))
    assert (np.diff(grid.values) >= 0).all()
    assert grid.levels is LEVELS or (grid.levels == LEVELS).all()
    one, other = (quantile_of_moments(np.array(mean * k), np.array(variance * k), 0.95) for k in (1.0, more))
    assert other >= one - 1e-9


def test_counts_alone_give_the_infinite_server_s_load() -> None:
    edges = np.linspace(0, 600, 61)
    demand = demand_of_counts(edges, 0.0, 4.0, 10.0, 0.5, 0.0)
    busy = demand.total / demand.widths_s
    # M/M/infinity: 4 exp(-t/s) + rate·s·(1 - exp(-t/s)), averaged over windows of 10 s
    middle = edges[:-1] + 5.0
    expected = 5.0 + (4.0 - 5.0) * np.exp(-middle / 10.0)
    assert busy == pytest.approx(expected, rel=0.01)


def test_arrivals_do_not_pile_up_while_nobody_asks() -> None:
    live = LiveWork(fit_profiles(plan_then_two_writers(), EDGES), rate_s=10.0)
    for i in range(1000):
        live.arrive(str(i), "a", "plan", float(i), is_first=True)
        live.ended(str(i))
    assert len(live._begun) <= 11
    assert len(live) == 0

"""Forecasts of workflows in the book of live work: the mean is theirs, the timing the log's, variances add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.predict.downstream import ModelOutlook, Outlook
from swarmx.predict.workflow_state import WorkflowState, observed_states
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.scaling.foreseen import Forecasts, Spread
from swarmx.scaling.foretell import Foreteller, states_between
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import AGES, Profiles, fit_profiles, windows_to
from swarmx.types import Call, CallRecord

EDGES = windows_to(60.0, 6)


def log() -> list[CallRecord]:
    """Plans of 10 s, followed 5 s later by one, two or three writers of 20 s each."""
    records = []
    for w in range(30):
        start = 100.0 * w
        ids = [(f"{w}/plan", "a", start, 10.0, None)]
        ids += [(f"{w}/write{i}", "b", start + 15.0, 20.0, f"{w}/plan") for i in range(1 + w % 3)]
        for name, model, begin, length, parent in ids:
            record = CallRecord(name, model, begin, "ok", str(w), parent, type=name.split("/")[1].rstrip("012"))
            times = {"dispatched_s": begin, "finished_s": begin + length, "output_tokens": round(length * 10)}
            records.append(replace(record, **times))  # type: ignore[arg-type]
    return records


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return fit_profiles(log(), EDGES)


def book(profiles: Profiles) -> LiveWork:
    live = LiveWork(profiles)
    live.arrive("x/plan", "a", "plan", 0.0, is_first=True, workflow="x")
    live.arrive("y/plan", "a", "plan", 0.0, is_first=True, workflow="y")
    return live


def downstream(live: LiveWork, model: str = "b") -> float:
    return float(live.demands(0.0)[model].mean["downstream"].sum())


def test_without_a_forecast_a_workflow_counts_as_its_types_average(profiles: Profiles) -> None:
    assert downstream(book(profiles)) == pytest.approx(2 * 40.0)


def test_a_forecast_s_mean_is_the_demand_and_its_timing_that_of_the_log(profiles: Profiles) -> None:
    live = book(profiles)
    live.foresee("x", {"b": QuantileGrid.point(20.0)})
    assert downstream(live) == pytest.approx(20.0 + 40.0)
    alone = live.outlook("x", 0.0)["b"]
    usual = LiveWork(profiles)
    usual.arrive("z", "a", "plan", 0.0, is_first=True, workflow="z")
    # the writers of every plan come at the same time, so that only their number was uncertain
    assert alone.mean() == pytest.approx(usual.outlook("z", 0.0)["b"].mean() / 2, rel=0.02)
    assert alone.sd() == pytest.approx(0.0, abs=1e-6)


def test_a_sharper_forecast_leaves_less_variance_and_a_vaguer_one_more(profiles: Profiles) -> None:
    spreads = []
    for sd in (1.0, 10.0, 25.0):
        live = book(profiles)
        live.foresee("x", {"b": QuantileGrid.of_samples(np.random.default_rng(0).normal(60.0, sd, 4000))})
        spreads.append(float(live.demands(0.0)["b"].variance["downstream"].sum()))
    assert spreads == sorted(spreads)
    assert spreads[-1] > 2 * spreads[0]


def test_a_model_that_nothing_leads_to_is_not_foreseen(profiles: Profiles) -> None:
    live = book(profiles)
    live.foresee("x", {"a": QuantileGrid.point(1000.0), "never seen": QuantileGrid.point(5.0)})
    assert downstream(live, "a") == 0.0


def test_calls_that_arrive_later_count_as_usual_and_what_has_ended_takes_its_forecast_along(profiles: Profiles) -> None:
    live = book(profiles)
    live.foresee("x", {"b": QuantileGrid.point(0.0)})
    live.foresee("gone", {"b": QuantileGrid.point(1e6)})
    live.arrive("x/plan2", "a", "plan", 0.0, is_first=False, workflow="x")
    assert downstream(live) == pytest.approx(40.0 + 40.0)
    live.ended("x/plan")
    live.ended("x/plan2")
    live.arrive("x/again", "a", "plan", 0.0, is_first=False, workflow="x")
    assert downstream(live) == pytest.approx(80.0)


def test_with_a_budget_forecasts_still_scale_what_waiting_calls_cause(profiles: Profiles) -> None:
    live = book(profiles)
    usual = live.demands(0.0, {"a": 2.0, "b": 2.0})["b"].mean["downstream"].sum()
    for name in ("x", "y"):
        live.foresee(name, {"b": QuantileGrid.point(80.0)})
    assert live.demands(0.0, {"a": 2.0, "b": 2.0})["b"].mean["downstream"].sum() == pytest.approx(2 * usual)


def test_the_parts_of_the_variance_add_up_to_the_log_s(profiles: Profiles) -> None:
    spread = Spread(profiles)
    whole = (profiles.later_square - profiles.later**2).reshape(spread.total.shape)
    assert spread.total + spread.timing == pytest.approx(np.maximum(whole, 0.0))
    assert (spread.total >= 0).all()
    assert (spread.timing >= -1e-12).all()
    assert spread.later.shape[0] == len(profiles.types) * AGES


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 7)), max_size=30),
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.25, 1.0, 9.0])), min_size=16, max_size=16
    ),
)
def test_weights_are_those_of_a_loop_over_calls(
    calls: list[tuple[int, int]], forecasts: list[tuple[float, float]]
) -> None:
    book, expected = Forecasts(2), np.zeros((3, 6, 2))
    for w in range(8):
        scale, total = np.array(forecasts[2 * w : 2 * w + 2]).T
        assert book.put(f"w{w}", scale, total) == w
    for cell, row in calls:
        scale, total = (book.scale[row], book.total[row]) if row >= 0 else (np.ones(2), np.ones(2))
        expected[:, cell] += scale, scale**2, total
    cells, rows = (np.array([pair[i] for pair in calls], dtype=np.int64) for i in (0, 1))
    found = book.weights(cells, rows, np.bincount(cells, minlength=6).astype(float))
    assert np.array([found.mean, found.timing, found.total]) == pytest.approx(expected)


class Counted:
    """Foresees a hundred tokens for every call that is live."""

    def __init__(self) -> None:
        self.asked = 0

    def predict_all(self, states: list[WorkflowState]) -> list[Outlook]:
        self.asked += len(states)
        return [self._one(100.0 * sum(s.output_tokens is None for s in state.steps)) for state in states]

    def _one(self, tokens: float) -> Outlook:
        grid = QuantileGrid.point(tokens)
        return Outlook({"b": ModelOutlook(QuantileGrid.point(1.0), grid)}, grid, {}, 0.0, "neural")


def test_the_foreteller_asks_once_for_what_changed_and_hands_over_seconds(profiles: Profiles) -> None:
    live, forecaster = book(profiles), Counted()
    foreteller = Foreteller(forecaster, {"b": 0.1})
    foreteller.arrived(Call("x/plan", "a", 0.0, type="plan", workflow_id="x"), None, 0.0)
    assert foreteller.tell(live, 0.0) == 1
    assert foreteller.tell(live, 5.0) == 0
    assert forecaster.asked == 1
    assert downstream(live) == pytest.approx(10.0 + 40.0)


class AtEvents:
    """Foresees two calls of `b`, 200 tokens in all, whenever a workflow has begun or a call has ended."""

    def __init__(self) -> None:
        self.states: list[WorkflowState] = []

    def predict_all(self, states: list[WorkflowState]) -> list[Outlook]:
        self.states += states
        grid = QuantileGrid.point(200.0)
        return [Outlook({"b": ModelOutlook(QuantileGrid.point(2.0), grid)}, grid, {}, 0.0, "neural") for _ in states]


def test_calls_that_have_come_since_an_event_are_not_foreseen_again(profiles: Profiles) -> None:
    live, forecaster = book(profiles), AtEvents()
    foreteller = Foreteller(forecaster, {"b": 0.1}, at_events=True)
    foreteller.arrived(Call("x/plan", "a", 0.0, type="plan", workflow_id="x"), None, 0.0)
    foreteller.tell(live, 0.0)
    assert downstream(live) == pytest.approx(20.0 + 40.0)  # and the average of the workflow that is not foretold
    for i, left in enumerate((10.0, 0.0, 0.0)):
        foreteller.arrived(Call(f"x/{i}", "b", 1.0, workflow_id="x", parent_id="x/plan"), None, 1.0)
        foreteller.tell(live, 1.0)
        assert downstream(live) == pytest.approx(left + 40.0)
    assert all(len(state.steps) == 1 for state in forecaster.states)  # asked of the beginning, as it was taught
    foreteller.ended(CallRecord("x/plan", "a", 0.0, "ok", "x", output_tokens=5), 2.0)
    foreteller.tell(live, 2.0)
    assert downstream(live) == pytest.approx(20.0 + 40.0)
    assert len(forecaster.states[-1].steps) == 4


def test_a_workflow_without_live_calls_is_forgotten_after_a_while(profiles: Profiles) -> None:
    foreteller = Foreteller(Counted(), {"b": 0.1})
    live = book(profiles)
    foreteller.arrived(Call("x/plan", "a", 0.0, workflow_id="x"), None, 0.0)
    foreteller.arrived(Call("y/plan", "a", 0.0, workflow_id="y"), None, 0.0)
    foreteller.ended(CallRecord("x/plan", "a", 0.0, "ok", "x", output_tokens=5), 10.0)
    foreteller.tell(live, 20.0)
    assert set(foreteller.states) == {"x", "y"}
    foreteller.tell(live, 2000.0)
    assert set(foreteller.states) == {"y"}


def test_states_are_learned_as_a_scaler_sees_them_a_moment_later() -> None:
    records = log()[:4]  # workflow 0: a plan and a writer; workflow 1: a plan and two, of which one is cut off here
    states = observed_states(records)
    soon, later = (states_between(records, states, lag) for lag in (1.0, 6.0))
    ends = {records[s.event].call_id: s for s in soon if not s.is_root}
    assert len(ends["0/plan"].coming) == 1
    ends = {records[s.event].call_id: s for s in later if not s.is_root}
    assert ends["0/plan"].coming == ()
    assert [records[i].call_id for i in ends["0/plan"].live] == ["0/write0"]
    # 11 s after a root's arrival its plan has ended: that state is the next event's
    assert not any(s.is_root for s in states_between(records, states, 11.0))


def test_an_outlook_is_a_distribution_per_model_and_window(profiles: Profiles) -> None:
    found = book(profiles).outlook("x", 0.0)
    assert set(found) == {"a", "b"}
    assert found["b"].values.shape == (6, LEVELS.size)
    assert found["b"].mean().sum() == pytest.approx(40.0, rel=0.02)

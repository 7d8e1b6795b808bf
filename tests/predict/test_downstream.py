"""What a workflow will still ask for: learned from states of recorded workflows, asked at run time by events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.predict.bundle import write_manifest
from swarmx.predict.downstream import Branch, DownstreamPredictor, Outlook
from swarmx.predict.downstream_fit import evaluate_downstream, fit_downstream, followers, outcomes
from swarmx.predict.packed import packed, unpacked
from swarmx.predict.start import Bins
from swarmx.predict.workflow_state import Step, WorkflowState, observed_states
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import CallRecord, Prediction

ROOTS = 25


def workflow(number: int, tasks: int, plan_tokens: int) -> list[CallRecord]:
    """A plan by "big", so many tasks by "small" at once, then a summary by "big"; every task takes its number of s."""
    name = f"w{number}"
    common = {"workflow_id": name, "status": "ok", "prompt_group": f"g{number % ROOTS}"}
    plan = CallRecord(
        f"{name}.plan", "big", 0.0, type="plan", dispatched_s=0.0, finished_s=1.0, output_tokens=plan_tokens, **common
    )  # type: ignore[arg-type]
    steps = [
        CallRecord(
            f"{name}.{k}", "small", 1.0, type="task", parent_id=plan.call_id, dispatched_s=1.0, finished_s=2.0 + k,
            output_tokens=50, **common,
        )  # type: ignore[arg-type]
        for k in range(tasks)
    ]  # fmt: skip
    end = CallRecord(
        f"{name}.sum", "big", 1.0 + tasks, type="sum", parent_id=steps[-1].call_id, dispatched_s=1.0 + tasks,
        finished_s=9.0, output_tokens=100, **common,
    )  # type: ignore[arg-type]  # fmt: skip
    return [plan, *steps, end]


@pytest.fixture(scope="module")
def records() -> list[CallRecord]:
    """200 workflows of one to five tasks; the plan has about ten tokens a task, which its reader cannot know before."""
    rng = np.random.default_rng(0)
    flows = [(n, int(rng.integers(1, 6))) for n in range(200)]
    return [r for n, tasks in flows for r in workflow(n, tasks, 10 * tasks + int(rng.integers(0, 3)))]


@pytest.fixture(scope="module")
def learned(records: list[CallRecord]) -> DownstreamPredictor:
    groups = [str(record.prompt_group) for record in records]
    found = fit_downstream(records, observed_states(records), lambda place: None, groups)
    return DownstreamPredictor.of_json(json.loads(json.dumps(found.as_json())))


def after_a_plan_of(tokens: float) -> WorkflowState:
    return WorkflowState.begin(Step("p", "big", "plan")).finished("p", tokens)


def test_a_state_knows_what_is_over_what_is_live_and_what_comes() -> None:
    flow = workflow(0, 3, 30)
    by_event = {(flow[s.event].call_id, s.is_root): s for s in observed_states(flow)}
    begun = by_event["w0.plan", True]
    assert (begun.finished, begun.live, len(begun.coming), begun.released) == ((), (0,), 4, (1, 2, 3))
    planned = by_event["w0.plan", False]
    assert (planned.finished, planned.live, planned.coming) == ((0,), (), (1, 2, 3, 4))
    first = by_event["w0.0", False]
    assert (first.finished, first.live, first.coming, first.released) == ((0, 1), (2, 3), (4,), ())
    assert by_event["w0.2", False].released == (4,) and by_event["w0.sum", False].coming == ()


def test_without_parents_the_call_that_ended_last_is_taken_to_have_released() -> None:
    flow = [
        CallRecord(str(k), "m", float(k), "ok", workflow_id="w", type="t", finished_s=k + 0.5, output_tokens=1)
        for k in range(3)
    ]
    released = {(s.event, s.is_root): s.released for s in observed_states(flow)}
    assert released[0, False] == (1,) and released[1, False] == (2,) and released[2, False] == ()


def test_what_comes_is_counted_per_model(records: list[CallRecord]) -> None:
    states = observed_states(records)
    wanted = outcomes(records, states)
    planned = next(n for n, s in enumerate(states) if records[s.event].type == "plan" and not s.is_root)
    tasks = sum(records[i].type == "task" for i in states[planned].coming)
    assert wanted["calls:small"][planned] == tasks and wanted["calls:big"][planned] == 1
    assert wanted["work"][planned] == 50 * tasks + 100 == wanted["work:small"][planned] + wanted["work:big"][planned]


def test_a_long_plan_brings_more_calls_than_a_short_one(learned: DownstreamPredictor) -> None:
    short, long = (learned.predict(after_a_plan_of(tokens)).models["small"].calls for tokens in (10, 50))
    assert short.at(0.5) < 2.2 and long.at(0.5) > 3.8
    # before the plan is written, both are possible
    begun = learned.predict(WorkflowState.begin(Step("p", "big", "plan"))).models["small"].calls
    assert begun.at(0.9) - begun.at(0.1) > 2 * (long.at(0.9) - long.at(0.1))


def test_the_branch_depends_on_what_still_runs(learned: DownstreamPredictor) -> None:
    """A task that ends while others run releases nothing; the last one releases the summary."""
    state = after_a_plan_of(30)
    for k in "abc":
        state = state.arrived(Step(k, "small", "task"))
    first = state.finished("a", 50)
    last = first.finished("b", 50).finished("c", 50)
    assert learned.predict(first).ends > 0.7
    found = learned.predict(last)
    assert found.branches[Branch("sum", "big")] > 0.7 > 0.3 > found.ends


def test_after_the_last_call_nothing_comes(learned: DownstreamPredictor) -> None:
    state = after_a_plan_of(10).arrived(Step("t", "small", "task")).finished("t", 50)
    done = learned.predict(state.arrived(Step("s", "big", "sum")).finished("s", 100))
    assert done.work.at(0.95) < 0.01 and done.ends > 0.9 and done.models["small"].calls.at(0.99) < 0.01


def test_held_out_workflows_are_predicted_better_than_by_kind(records: list[CallRecord]) -> None:
    states = observed_states(records)
    groups = [str(record.prompt_group) for record in records]
    testing = {f"g{k}" for k in range(0, ROOTS, 5)}
    train = [s for s in states if groups[s.root] not in testing]
    test = [s for s in states if groups[s.root] in testing]
    learned = fit_downstream(records, train, lambda place: None, groups)
    found = evaluate_downstream(learned, records, train, test, lambda place: None)
    ratio = found["targets"]["calls:small"]["after a call"]["baselines"]["per_kind"]["pinball_ratio"]
    assert ratio["0.5"] < 0.4 and ratio["0.9"] < 0.8
    assert found["branches"]["log_loss"] < 0.7 * found["branches"]["per_kind"]


def test_an_expectation_from_the_text_is_used_where_it_helps(records: list[CallRecord]) -> None:
    """Told the plan's own count of tasks at its beginning, the outlook of a beginning is as sure as after the plan."""
    states = observed_states(records)
    tasks = {s.root: len(s.coming) - 1 for s in states if s.is_root}
    roots = {records[i].workflow_id: i for i in tasks}
    expected = lambda i: (0.0, 0.0, float(np.log1p(tasks[roots[records[i].workflow_id]])))  # noqa: E731
    learned = fit_downstream(records, states, expected, [str(r.prompt_group) for r in records])
    assert "calls:small" in learned.text.targets

    def begun(calls: float) -> QuantileGrid:
        seen = Prediction(QuantileGrid.point(0.0), downstream={"small": QuantileGrid.point(calls)},
                          remaining_tokens=QuantileGrid.point(0.0))  # fmt: skip
        return learned.predict(WorkflowState.begin(Step("p", "big", "plan", expected=seen))).models["small"].calls

    assert begun(1).at(0.5) < 2 < 4 < begun(5).at(0.5)


def sound(outlook: Outlook) -> bool:
    grids = [outlook.work, *(g for m in outlook.models.values() for g in (m.calls, m.work))]
    shares = [*outlook.branches.values(), outlook.ends]
    return all(np.all(np.isfinite(g.values)) and g.values[0] >= 0 for g in grids) and all(0 <= s <= 1 for s in shares)


anything = st.one_of(st.none(), st.text(max_size=8), st.sampled_from(["plan", "task", "sum"]))
numbers = st.one_of(st.floats(), st.integers(-5, 10**9))
calls = st.tuples(anything, st.text(max_size=5), numbers, st.one_of(st.none(), numbers))


@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(calls, min_size=1, max_size=6),
    ended=st.one_of(st.none(), st.integers(0, 6)),
)
def test_any_state_has_a_finite_outlook(
    learned: DownstreamPredictor, steps: list[tuple[str | None, str, int, float | None]], ended: int | None
) -> None:
    seen = tuple(Step(str(i), model, kind, prompt, out) for i, (kind, model, prompt, out) in enumerate(steps))
    outlook = learned.predict(WorkflowState(seen, None if ended is None else str(ended)))
    assert sound(outlook)
    known = {"plan", "task", "sum"}
    if outlook.source == "neural":
        assert any(step.type in known for step in seen)


def test_an_unknown_label_gets_the_quantiles_of_all_states(learned: DownstreamPredictor) -> None:
    outlook = learned.predict(WorkflowState.begin(Step("x", "other", "never seen")))
    assert outlook.source == "pool_mean" and sound(outlook)


def test_many_states_at_once_are_the_same_as_one_by_one(learned: DownstreamPredictor) -> None:
    states = [after_a_plan_of(tokens) for tokens in range(0, 60, 7)]
    together = learned.predict_all(states)
    for state, outlook in zip(states, together, strict=True):
        np.testing.assert_allclose(learned.predict(state).work.values, outlook.work.values, rtol=1e-9)


def test_events_that_say_nothing_new_change_nothing() -> None:
    state = WorkflowState.begin(Step("a", "m", "t"))
    assert state.arrived(Step("a", "m", "t")) is state and state.finished("nobody", 1.0) is state


def test_training_writes_it_and_load_reads_it(trained: Path, make_log: Callable[..., list[CallRecord]]) -> None:
    learned = DownstreamPredictor.load(trained)
    assert learned.models and learned.version
    outlook = learned.predict(WorkflowState.begin(Step.of(_call(make_log(10)[0]))))
    assert sound(outlook) and outlook.work.levels is LEVELS
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["downstream"]["states"] > 0
    assert "of workflows" in (trained / "card.md").read_text()


def _call(record: CallRecord):  # type: ignore[no-untyped-def]
    from swarmx.types import Call

    return Call(record.call_id, record.model, record.arrival_s, type=record.type, prompt_tokens=record.prompt_tokens)


def test_a_model_without_outlooks_says_what_would_do(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"targets": ["tokens"]})
    with pytest.raises(BadInput, match="workflow_id"):
        DownstreamPredictor.load(tmp_path)


@pytest.mark.parametrize("change", [{"vocabulary": {}}, {"plain": {"targets": {}, "branches": {}}}, {"text": None}])
def test_a_damaged_file_is_refused(learned: DownstreamPredictor, tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "downstream.json").write_text(json.dumps(learned.as_json() | change))
    write_manifest(tmp_path, {"targets": ["tokens"]})
    with pytest.raises(BadInput, match=r"downstream\.json"):
        DownstreamPredictor.load(tmp_path)


def test_packed_arrays_come_back_and_wrong_ones_are_refused() -> None:
    array = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(unpacked(packed(array), -1, 3), array)
    for broken in (packed(array), {"shape": [2, 3], "f4": "!"}, packed(np.full((2, 2), np.nan))):
        with pytest.raises((ValueError, KeyError, TypeError)):
            unpacked(broken, 2, 2)


@given(
    ridge=st.lists(st.floats(-5, 20), min_size=1, max_size=9),
    centre=st.lists(st.floats(-2, 12), min_size=1, max_size=6, unique=True),
)
def test_bins_are_read_off_linearly_and_flat_outside(ridge: list[float], centre: list[float]) -> None:
    middles = np.sort(np.array(centre)) + 1e-3 * np.arange(len(centre))
    table = np.random.default_rng(len(centre)).normal(size=(len(centre), len(LEVELS)))
    wanted = np.array(ridge)[:, None] + np.stack([np.interp(ridge, middles, column) for column in table.T], axis=1)
    np.testing.assert_allclose(Bins(middles, table).at(np.array(ridge)), wanted, atol=1e-9)


def test_followers_are_kinds_of_calls(records: list[CallRecord]) -> None:
    states = observed_states(records)
    found = followers(records, states)
    assert {b for branches in found for b in branches} == {Branch("task", "small"), Branch("sum", "big")}

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.logs.workflows import parents_from_time, workflows_of
from swarmx.types import CallRecord

QUICK = settings(max_examples=100, deadline=None, derandomize=True)


def call(call_id: str, start: float, end: float | None, **more: object) -> CallRecord:
    return CallRecord(call_id, "m", start, "ok", workflow_id="w", finished_s=end, **more)  # type: ignore[arg-type]


# whole seconds, so that calls often touch or last no time at all
spans = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=9)


def timed(spans: list[tuple[int, int]]) -> list[CallRecord]:
    return [call(f"c{i}", start, start + length) for i, (start, length) in enumerate(spans)]


@st.composite
def graphs(draw: st.DrawFn) -> list[CallRecord]:
    """A run whose calls name earlier calls as parents, some of them failed, in any file order."""
    log: list[CallRecord] = []
    for i in range(draw(st.integers(1, 8))):
        parents = draw(st.lists(st.sampled_from(log), max_size=3, unique=True)) if log else []
        start = max((p.finished_s or 0.0 for p in parents), default=1.0) + draw(st.floats(-0.5, 3))
        status = draw(st.sampled_from(("ok", "ok", "ok", "error", "timeout")))
        record = call(f"c{i}", max(start, 0.0), max(start, 0.0) + draw(st.floats(0, 5)))
        log.append(replace(record, status=status, waits_for=tuple(p.call_id for p in parents)))
    return draw(st.permutations(log))


@QUICK
@given(log=graphs())
def test_parents_precede_children_and_every_ok_call_is_there_once(log: list[CallRecord]) -> None:
    workflows = workflows_of(log)
    ok = {r.call_id for r in log if r.status == "ok"}
    assert sorted(c.record.call_id for w in workflows for c in w.calls) == sorted(ok)
    assert sum(w.dropped + len(w.calls) for w in workflows) == (len(log) if ok else 0)
    for workflow in workflows:
        seen: set[str] = set()
        for recorded in workflow.calls:
            assert seen.issuperset(recorded.parents)
            seen.add(recorded.record.call_id)


@QUICK
@given(log=graphs())
def test_parents_end_and_delay_give_back_the_recorded_arrival(log: list[CallRecord]) -> None:
    for workflow in workflows_of(log):
        ends = {c.record.call_id: c.record.finished_s or 0.0 for c in workflow.calls}
        for c in workflow.calls:
            released = max((ends[p] for p in c.parents), default=workflow.arrival_s)
            assert c.delay_s >= 0 and c.early_s >= 0 and min(c.delay_s, c.early_s) == 0
            assert released + c.delay_s - c.early_s == pytest.approx(c.record.arrival_s)


@QUICK
@given(spans=spans)
def test_inferred_parents_reach_exactly_the_calls_that_had_ended(spans: list[tuple[int, int]]) -> None:
    log = timed(spans)
    parents = parents_from_time(log)
    order = sorted(log, key=lambda r: (r.arrival_s, r.finished_s, r.call_id))
    ancestors: dict[str, set[str]] = {}
    for place, record in enumerate(order):
        ancestors[record.call_id] = set(parents[record.call_id]).union(*(ancestors[p] for p in parents[record.call_id]))
        ended = {r.call_id for r in order[:place] if r.finished_s is not None and r.finished_s <= record.arrival_s}
        assert ancestors[record.call_id] == ended


@QUICK
@given(spans=spans)
def test_no_inferred_parent_is_an_ancestor_of_another(spans: list[tuple[int, int]]) -> None:
    log = timed(spans)
    parents = parents_from_time(log)

    def ancestors(call_id: str) -> set[str]:
        return set(parents[call_id]).union(*(ancestors(p) for p in parents[call_id]))

    for ids in parents.values():
        assert all(not ancestors(a) & set(ids) for a in ids)


def test_a_fan_out_and_its_merge_are_inferred_from_time() -> None:
    log = [call("plan", 1, 2), call("a", 2.5, 4), call("b", 2.5, 6), call("merge", 6.5, 8)]
    (workflow,) = workflows_of(log)
    assert [(c.record.call_id, c.parents, c.delay_s) for c in workflow.calls] == [
        ("plan", (), 0.0),
        ("a", ("plan",), 0.5),
        ("b", ("plan",), 0.5),
        ("merge", ("a", "b"), 0.5),
    ]


def test_waits_for_is_believed_over_time_and_over_parent_id() -> None:
    log = [call("a", 0, 1), call("b", 2, 3), call("c", 4, 5, waits_for=("a",), parent_id="b")]
    (workflow,) = workflows_of(log)
    assert [c.parents for c in workflow.calls] == [(), (), ("a",)]


def test_parent_id_alone_makes_a_tree() -> None:
    log = [call("a", 0, 1), call("b", 2, 3, parent_id="a"), call("c", 2, 4, parent_id="a")]
    (workflow,) = workflows_of(log)
    assert [c.parents for c in workflow.calls] == [(), ("a",), ("a",)]


def test_children_of_a_failed_call_wait_for_what_it_waited_for() -> None:
    failed = replace(call("try", 2, 3, waits_for=("plan",)), status="error")
    (workflow,) = workflows_of([call("plan", 0, 1), failed, call("again", 3.5, 5, waits_for=("try",))])
    again = workflow.calls[1]
    assert (again.parents, again.delay_s, workflow.dropped) == (("plan",), 2.5, 1)


def test_a_lone_call_is_its_own_workflow_and_needs_no_end() -> None:
    (workflow,) = workflows_of([replace(call("a", 3, None), workflow_id="", tenant="t", priority="low")])
    assert (workflow.id, workflow.arrival_s, workflow.tenant, workflow.priority) == ("a", 3, "t", "low")


def test_a_root_waits_since_the_arrival_of_its_workflow() -> None:
    (workflow,) = workflows_of([call("a", 3, 4, workflow_arrival_s=1.0)])
    assert (workflow.arrival_s, workflow.calls[0].delay_s) == (1.0, 2.0)


def test_a_workflow_without_a_good_call_is_left_out() -> None:
    assert workflows_of([replace(call("a", 0, 1), status="cancelled")]) == []


def test_a_child_that_arrived_before_its_parent_ended_says_how_early() -> None:
    (workflow,) = workflows_of([call("a", 0, 2), call("b", 1.5, 3, parent_id="a")])
    assert (workflow.calls[1].delay_s, workflow.calls[1].early_s) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([call("a", 0, 1, waits_for=("b",)), call("b", 0, 1, waits_for=("a",))], "wait for each other"),
        ([call("a", 0, 1, parent_id="a")], "wait for each other"),
        ([call("a", 0, 1, parent_id="nobody")], "'nobody', which is no call"),
        ([call("a", 0, 1), call("a", 2, 3)], "'a' occurs more than once"),
        ([call("a", 0, None), call("b", 2, 3)], "'a' has no finished_s"),
        ([call("a", 0, None), call("b", 2, 3, parent_id="a")], "'a' has no finished_s, yet 'b'"),
    ],
)
def test_a_graph_that_cannot_be_replayed_is_refused_by_name(log: list[CallRecord], words: str) -> None:
    with pytest.raises(BadInput, match="workflow 'w'") as problem:
        workflows_of(log)
    assert words in str(problem.value)


def test_a_large_workflow_is_quick_to_infer() -> None:
    log = [call(f"c{i}", i // 50, i // 50 + 1) for i in range(20_000)]
    assert len(parents_from_time(log)["c19999"]) == 50

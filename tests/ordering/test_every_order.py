"""What holds for every queue discipline, with its own worst case of arrivals searched for."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from driver import World

from swarmx.engine import EngineConstants
from swarmx.ordering import ORDERS, Asked, order_named
from swarmx.presets import preset
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import PRIORITIES, Call, CallRecord, Prediction, ReplicaState, Start
from swarmx.waiting import lengths_of

KNOWN = {"d": EngineConstants(a=1.0)}
NAMES = list(ORDERS)
BINDINGS = ("late", "central_fcfs", "push")


def replica(name: str, slots: int = 1) -> ReplicaState:
    return ReplicaState(name, "m", "d", slots=slots)


def sure(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


@st.composite
def arrivals(draw: st.DrawFn, most: int = 25) -> list[tuple[Call, int]]:
    """Calls with their true lengths: clumps, silences, several tenants, workflows and classes."""
    now, out = 0.0, []
    for i in range(draw(st.integers(1, most))):
        now += draw(st.sampled_from([0.0, 0.0, 1.0, 7.0, 40.0]))
        workflow = draw(st.sampled_from(["w0", "w1", f"own{i}"]))
        out.append(
            (
                Call(
                    f"c{i}", "m", now, prompt_tokens=draw(st.integers(0, 30)), workflow_id=workflow,
                    workflow_arrival_s=now / 2, tenant=draw(st.sampled_from(["a", "b", "c"])),
                    priority=draw(st.sampled_from(PRIORITIES)), type=draw(st.sampled_from(["x", "y"])),
                    deadline_s=draw(st.sampled_from([None, now + 50.0])),
                ),
                draw(st.integers(1, 30)),
            )
        )  # fmt: skip
    return out


def play(binding: str, name: str, calls: list[tuple[Call, int]], replicas: int = 2) -> World:
    lengths = {call.id: tokens for call, tokens in calls}
    scheduler = preset(binding, 3, KNOWN, order=name)
    world = World(scheduler, [replica(f"r{i}") for i in range(replicas)], lengths, late=binding != "push")
    return world.run([call for call, _ in calls], {call.id: sure(float(n)) for call, n in calls})


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(calls=arrivals())
def test_no_call_is_lost_or_started_twice_under_any_binding(name: str, calls: list[tuple[Call, int]]) -> None:
    for binding in BINDINGS:
        world = play(binding, name, calls)
        assert sorted(c for c, _, _ in world.started) == sorted(call.id for call, _ in calls)
        assert sorted(world.ended) == sorted(call.id for call, _ in calls)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(calls=arrivals())
def test_the_same_arrivals_make_the_same_order(name: str, calls: list[tuple[Call, int]]) -> None:
    assert play("late", name, calls).started == play("late", name, calls).started


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(calls=arrivals(), seed=st.integers(0, 99))
def test_failures_refusals_and_lost_replicas_keep_every_call(
    name: str, calls: list[tuple[Call, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scheduler = preset("late", 0, KNOWN, order=name)
    both = [replica("r0", 2), replica("r1")]
    running: dict[str, str] = {}
    done: set[str] = set()

    def carry_out(decisions: list) -> None:  # type: ignore[type-arg]
        for decision in decisions:
            assert isinstance(decision, Start)
            assert decision.call_id not in running
            assert decision.call_id not in done
            running[decision.call_id] = decision.replica

    carry_out(scheduler.replicas_changed(both, 0.0))
    now = 0.0
    for call, tokens in calls:
        now = max(now, call.arrival_s)
        carry_out(scheduler.arrive(call, sure(float(tokens)), now))
        for _ in range(2):
            if not running:
                break
            now += 0.5
            victim = sorted(running)[int(rng.integers(len(running)))]
            where, fate = running.pop(victim), rng.random()
            if fate < 0.3:
                carry_out(scheduler.finished(CallRecord(victim, "m", 0.0, "error", output_tokens=2), now, retry=True))
            elif fate < 0.5:
                carry_out(scheduler.refused(victim, replica(where), now))
            elif fate < 0.6:
                running = {c: r for c, r in running.items() if (r != "r1" and where != "r1") or r == "r0"}
                gone = [r for r in both if r.id != "r1"]
                if where == "r0":
                    running[victim] = where
                carry_out(scheduler.replicas_changed(gone, now))
                carry_out(scheduler.replicas_changed(both, now))
            else:
                done.add(victim)
                carry_out(scheduler.finished(CallRecord(victim, "m", 0.0, "ok", output_tokens=3), now))
    for _ in range(300):
        now += 1.5
        if running:
            victim = min(running)
            del running[victim]
            done.add(victim)
            carry_out(scheduler.finished(CallRecord(victim, "m", 0.0, "ok", output_tokens=3), now))
        carry_out(scheduler.tick(now))
        if len(done) == len(calls):
            break
    assert done == {call.id for call, _ in calls}
    assert not len(scheduler.queue)


@pytest.mark.parametrize("name", NAMES)
def test_a_better_class_goes_first_whatever_the_discipline_says(name: str) -> None:
    calls = [(Call("runs", "m", 0.0), 10)]
    calls += [(Call(f"low{i}", "m", 1.0, priority="low", workflow_arrival_s=0.0), 1) for i in range(5)]
    calls += [(Call(f"high{i}", "m", 2.0, priority="high", tenant="t", prompt_tokens=20), 25) for i in range(3)]
    world = play("late", name, calls, replicas=1)
    assert [c for c, _, _ in world.started][1:4] == ["high0", "high1", "high2"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(calls=arrivals(), slots=st.integers(1, 3), hold=st.sampled_from([0.0, 5.0, 30.0]))
def test_a_due_call_is_preceded_only_by_calls_that_came_due_earlier(
    name: str, calls: list[tuple[Call, int]], slots: int, hold: float
) -> None:
    lengths = {call.id: tokens for call, tokens in calls}
    holds = (hold, 2 * hold, 3 * hold)  # of calls alone; that of tenants has a bound and a test of its own
    scheduler = preset("central_fcfs", 0, KNOWN, order=name, overtakes=3, hold_s=holds, tenant_services=np.inf)
    start = scheduler._start
    broken = []

    def watched(waiting, i, now):  # type: ignore[no-untyped-def]
        mine = (np.inf if waiting.due_s is None else waiting.due_s, waiting.key)
        broken.extend(w for w in scheduler.queue if w.due_s is not None and (w.due_s, w.key) < mine)
        return start(waiting, i, now)

    scheduler._start = watched  # type: ignore[method-assign]
    World(scheduler, [replica("r0", slots)], lengths).run([call for call, _ in calls])
    assert not broken


@pytest.mark.parametrize("name", NAMES)
def test_what_an_order_is_asked_with_is_left_untouched(name: str) -> None:
    grid = QuantileGrid(LEVELS, np.linspace(1, 100, LEVELS.size))
    call = Call("c", "m", 1.0, prompt_tokens=10, workflow_id="w", tenant="t")
    prediction = Prediction(grid, "oracle", remaining_tokens=grid)
    asked = Asked(call, prediction, lengths_of(grid, None), 5.0, 0.1, 0.01, True, 2.0)
    values = grid.values.copy()
    order = order_named(name)
    getattr(order, "arrived", lambda asked: None)(asked)
    before = pickle.dumps(order)
    assert order.key(asked) == order.key(asked)
    assert pickle.dumps(order) == before
    assert np.array_equal(grid.values, values)


def test_an_unknown_order_or_option_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown order 'best'; choose one of fcfs, oldest_workflow"):
        order_named("best")
    with pytest.raises(ValueError, match=r"order 'edf'.*colour"):
        order_named("edf", colour="red")

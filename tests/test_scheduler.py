"""Laws of the scheduler, above all of look-ahead late binding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driver import World
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx import kernel
from swarmx.engine import EngineConstants
from swarmx.presets import PRESETS, preset
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.routing.completion import Completion
from swarmx.types import Call, CallRecord, Prediction, Reject, ReplicaState, Start

KNOWN = {"d": EngineConstants(a=1.0)}
PRIORITIES = st.sampled_from(["high", "normal", "low"])
SIMPLE_LATE = [name for name, p in PRESETS.items() if p.parts().binding == "late"]
IMMEDIATE = [name for name, p in PRESETS.items() if p.parts().binding == "immediate"]


def replica(name: str, **more: object) -> ReplicaState:
    return ReplicaState(name, "m", "d", **more)  # type: ignore[arg-type]


def exactly(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[list[ReplicaState], list[Call], dict[str, int], dict[str, Prediction | None]]:
    replicas = [
        replica(f"r{i}", slots=draw(st.integers(1, 3)), speed=draw(st.sampled_from([0.25, 0.5, 1.0, 2.0])))
        for i in range(draw(st.integers(1, 4)))
    ]
    count = draw(st.integers(1, 40))
    calls, lengths, predictions, now = [], {}, {}, 0.0
    for i in range(count):
        now += draw(st.sampled_from([0.0, 0.5, 3.0, 20.0]))
        name = f"c{i}"
        lengths[name] = draw(st.integers(1, 60))
        workflow = draw(st.sampled_from(["a", "b", name]))
        calls.append(
            Call(name, "m", now, prompt_tokens=draw(st.integers(0, 50)), workflow_id=workflow,
                 workflow_arrival_s=now / 2 if workflow != name else None, priority=draw(PRIORITIES))
        )  # fmt: skip
        guess = draw(st.sampled_from(["exact", "wrong", "none"]))
        predictions[name] = (
            None if guess == "none" else exactly(lengths[name] if guess == "exact" else draw(st.floats(0.1, 500)))
        )
    return replicas, calls, lengths, predictions


@pytest.mark.parametrize("name", list(PRESETS))
@settings(max_examples=25, deadline=None)
@given(scenario=scenarios())
def test_every_call_is_started_exactly_once_and_ends(name: str, scenario: tuple) -> None:  # type: ignore[type-arg]
    replicas, calls, lengths, predictions = scenario
    for engines in (None, KNOWN):
        world = World(preset(name, engines=engines), replicas, lengths, late=name in SIMPLE_LATE)
        world.run(calls, predictions)
        assert sorted(c for c, _, _ in world.started) == sorted(lengths)
        assert sorted(world.ended) == sorted(lengths)
        assert not world.rejected
        assert not world.scheduler.cluster.flights


@pytest.mark.parametrize("name", list(PRESETS))
@settings(max_examples=10, deadline=None)
@given(scenario=scenarios())
def test_the_same_seed_makes_the_same_choices(name: str, scenario: tuple) -> None:  # type: ignore[type-arg]
    replicas, calls, lengths, predictions = scenario
    runs = [
        World(preset(name, seed=7, engines=KNOWN), replicas, lengths, late=False).run(calls, predictions).started
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@settings(max_examples=60, deadline=None)
@given(scenario=scenarios())
def test_late_on_one_replica_is_its_queue_discipline(scenario: tuple) -> None:  # type: ignore[type-arg]
    _, calls, lengths, predictions = scenario
    scheduler = preset("late", engines=KNOWN, hold_services=1e9, overtakes=10**9)
    waiting: dict[str, tuple] = {}  # type: ignore[type-arg]
    keys: dict[str, tuple] = {}  # type: ignore[type-arg]
    world = World(scheduler, [replica("r0")], lengths)
    arrive = scheduler.arrive

    def watched(call: Call, prediction: Prediction | None, now: float) -> list:  # type: ignore[type-arg]
        decisions = arrive(call, prediction, now)
        entry = scheduler.queue.get(call.id) or scheduler._bound[call.id]
        keys[call.id] = waiting[call.id] = entry.key
        return decisions

    scheduler.arrive = watched  # type: ignore[method-assign]
    world.run(calls, predictions)
    arrival = {c.id: c.arrival_s for c in calls}
    for position, (name, _, when) in enumerate(world.started):
        later = [other for other, _, _ in world.started[position + 1 :] if arrival[other] < when]
        assert all(keys[name] <= keys[other] for other in later)


@settings(max_examples=100, deadline=None)
@given(tokens=st.floats(1, 500), speeds=st.lists(st.sampled_from([0.3, 0.6, 1.0, 2.0]), min_size=1, max_size=6))
def test_late_at_zero_load_takes_the_least_expected_finish(tokens: float, speeds: list[float]) -> None:
    engines = {f"d{v}": EngineConstants(a=1 / v) for v in speeds}
    states = [ReplicaState(f"r{i}", "m", f"d{v}", speed=v) for i, v in enumerate(speeds)]
    for name in ("late", "least_expected"):
        scheduler = preset(name, engines=engines)
        scheduler.replicas_changed(states, 0.0)
        (start,) = scheduler.arrive(Call("c", "m", 0.0), exactly(tokens), 0.0)
        assert isinstance(start, Start)
        assert speeds[int(start.replica[1:])] == max(speeds)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_late_never_commits_more_kv_than_there_is(data: st.DataObject) -> None:
    states = [replica(f"r{i}", slots=8, kv_capacity_tokens=data.draw(st.integers(200, 1000))) for i in range(3)]
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed(states, 0.0)
    flying: set[str] = set()
    for i in range(60):
        if flying and data.draw(st.booleans()):
            done = data.draw(st.sampled_from(sorted(flying)))
            decisions = scheduler.finished(CallRecord(done, "m", 0.0, "ok", output_tokens=10), float(i))
            flying.remove(done)
        else:
            call = Call(f"c{i}", "m", float(i), prompt_tokens=data.draw(st.integers(0, 190)))
            decisions = scheduler.arrive(call, exactly(data.draw(st.floats(1, 300))), float(i))
        for decision in decisions:
            assert isinstance(decision, Start)
            flying.add(decision.call_id)
            r = scheduler.cluster.index[decision.replica]  # what its calls are expected to need, as is known by now
            held = scheduler.cluster.replicas[kernel.MINE_NEED, r]
            assert held <= states[r].kv_capacity_tokens + 1e-6 or scheduler.cluster.replicas[kernel.MINE, r] == 1


def test_a_call_too_large_for_every_replica_is_rejected_with_the_reason() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0", context_tokens=100), replica("r1", kv_capacity_tokens=200)], 0.0)
    (rejected,) = scheduler.arrive(Call("c", "m", 0.0, prompt_tokens=200), None, 0.0)
    assert isinstance(rejected, Reject)
    assert "the largest takes 199" in rejected.reason
    assert not scheduler.queue


def test_a_refusal_sends_the_call_elsewhere_and_is_forgotten_after_a_second() -> None:
    fast, slow = replica("fast", speed=4.0), replica("slow", speed=1.0)
    engines = {"d": EngineConstants(a=1.0)}
    scheduler = preset("late", engines=engines)
    scheduler.replicas_changed([fast], 0.0)
    (start,) = scheduler.arrive(Call("c", "m", 0.0), exactly(10), 0.0)
    assert isinstance(start, Start)
    assert scheduler.refused("c", fast, 0.1) == []
    assert scheduler.tick(0.5) == []
    (again,) = scheduler.tick(1.2)
    assert isinstance(again, Start)
    assert scheduler.refused("c", fast, 1.3) == []
    (other,) = scheduler.replicas_changed([fast, slow], 1.4)
    assert isinstance(other, Start)
    assert other.replica == "slow"


def test_a_state_that_comes_with_an_answer_shows_what_others_have_there() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0", reported_s=0.0)], 0.0)
    scheduler.arrive(Call("mine", "m", 0.0), exactly(10), 0.0)
    scheduler.arrive(Call("next", "m", 1.0), exactly(10), 1.0)
    taken = replica("r0", running=1, reported_s=10.0)  # somebody else's, since mine has left it
    ended = CallRecord("mine", "m", 0.0, "ok", output_tokens=10)
    assert scheduler.finished(ended, 10.0, state=taken) == []
    (start,) = scheduler.replicas_changed([replica("r0", reported_s=11.0)], 11.0)
    assert isinstance(start, Start)
    assert start.call_id == "next"


def test_calls_of_a_replica_that_is_gone_go_back_with_their_place() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0")], 0.0)
    scheduler.arrive(Call("first", "m", 0.0), exactly(10), 0.0)
    scheduler.arrive(Call("second", "m", 1.0), exactly(10), 1.0)
    (start,) = scheduler.replicas_changed([replica("r1")], 2.0)
    assert isinstance(start, Start)
    assert (start.call_id, start.replica) == ("first", "r1")


def test_a_failed_call_is_repeated_only_when_asked_to() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0")], 0.0)
    scheduler.arrive(Call("c", "m", 0.0), exactly(10), 0.0)
    (again,) = scheduler.finished(CallRecord("c", "m", 0.0, "error"), 1.0, retry=True)
    assert isinstance(again, Start)
    assert scheduler.finished(CallRecord("c", "m", 0.0, "error"), 2.0) == []
    assert "c" not in scheduler.queue


def test_a_cancelled_call_leaves_the_queue() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0")], 0.0)
    scheduler.arrive(Call("runs", "m", 0.0), exactly(10), 0.0)
    scheduler.arrive(Call("waits", "m", 0.0), exactly(10), 0.0)
    assert scheduler.finished(CallRecord("waits", "m", 0.0, "cancelled"), 1.0) == []
    assert not scheduler.queue


def crowded(seed: int, overtakes: int) -> tuple[World, list[tuple[str, str, float, float]], int]:
    """Unequal replicas under pressure; (world, starts that took a due call's place, how many calls came due)."""
    rng = np.random.default_rng(seed)
    states = [ReplicaState(f"r{i}", "m", f"d{i}", speed=v) for i, v in enumerate([1.0, 0.3, 0.1])]
    engines = {s.device: EngineConstants(a=1 / s.speed) for s in states}
    scheduler = preset("late", engines=engines, overtakes=overtakes, hold_services=1e9)
    calls, lengths, predictions = [], {}, {}
    for i in range(120):
        lengths[f"c{i}"] = int(rng.lognormal(2.5, 1)) + 1
        workflow_arrival = float(i * 12 - rng.exponential(200))
        calls.append(Call(f"c{i}", "m", float(i * 12), workflow_arrival_s=workflow_arrival))
        predictions[f"c{i}"] = exactly(float(lengths[f"c{i}"]))
    taken, due = [], set()
    start = scheduler._start

    def watched(waiting, i, now):  # type: ignore[no-untyped-def]
        place = scheduler.cluster.states[i].id
        mine = (waiting.due_s if waiting.due_s is not None else np.inf, waiting.key)
        for other in scheduler.queue:
            if other.due_s is not None:
                due.add(other.call.id)
                if other.pin == place and (other.due_s, other.key) < mine:
                    taken.append((waiting.call.id, other.call.id, other.due_s, now))
        return start(waiting, i, now)

    scheduler._start = watched  # type: ignore[method-assign]
    return World(scheduler, states, lengths).run(calls, predictions), taken, len(due)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), overtakes=st.integers(0, 6))
def test_nobody_takes_the_place_that_an_earlier_due_call_waits_for(seed: int, overtakes: int) -> None:
    world, taken, _ = crowded(seed, overtakes)
    assert taken == []
    assert len(world.ended) == 120


def test_the_crowded_world_does_make_calls_due() -> None:
    assert sum(crowded(seed, 2)[2] for seed in range(5)) >= 10


def test_a_silent_replica_is_taken_out_by_tick_and_comes_back_with_the_first_sign_of_life() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0", slots=2), replica("r1", slots=1)], 0.0)
    for i in range(3):
        scheduler.arrive(Call(f"c{i}", "m", 0.0), exactly(10), 0.0)
    stuck = [c for c, f in scheduler.cluster.flights.items() if f.replica == "r0"]
    assert scheduler.tick(15.0) == []
    assert all(scheduler.cluster.replicas[15] > 0)
    scheduler.tick(200.0)
    usable = scheduler.usable(_waiting(scheduler), 200.0)
    assert not usable.any()
    scheduler.progress(stuck[0], 3, 201.0)
    assert scheduler.usable(_waiting(scheduler), 201.0).tolist() == [True, False]


def _waiting(scheduler: object):  # type: ignore[no-untyped-def]
    call = Call("probe", "m", 0.0)
    return scheduler.intake.entry(call, exactly(1.0), 0.0, scheduler.cluster, True)  # type: ignore[attr-defined]


def test_receipts_explain_a_start_and_a_held_call() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.receipts = True
    scheduler.replicas_changed([replica("r0"), replica("r1")], 0.0)
    (start,) = scheduler.arrive(Call("a", "m", 0.0), exactly(10), 0.0)
    assert isinstance(start, Start)
    assert start.receipt is not None
    assert start.receipt.replica == start.replica
    assert [c.own_s for c in start.receipt.candidates] == pytest.approx([10.0, 10.0])
    scheduler.arrive(Call("b", "m", 0.0), exactly(10), 0.0)
    scheduler.arrive(Call("c", "m", 1.0), exactly(10), 1.0)
    held = scheduler.explain("c", 1.0)
    assert held is not None
    assert held.action == "hold"
    assert held.candidates[0].releases == 1
    assert held.candidates[0].own_s == pytest.approx(19.0)
    assert scheduler.explain("a", 1.0) is None


def test_an_unknown_policy_or_option_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'best'; choose one of random, round_robin"):
        preset("best")
    with pytest.raises(ValueError, match="unknown option 'colour'; known are order"):
        preset("late", colour="red")
    with pytest.raises(ValueError, match="overtakes cannot be set: this policy does not walk"):
        preset("random", overtakes=3)


def test_every_grid_in_the_book_is_cut_at_max_tokens() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0")], 0.0)
    wide = Prediction(QuantileGrid(LEVELS, np.linspace(1, 1000, LEVELS.size)), "oracle")
    scheduler.arrive(Call("c", "m", 0.0, max_tokens=50), wide, 0.0)
    assert scheduler.cluster.flight_table()[0, -1] == 50


@pytest.mark.parametrize(("wait_weight", "where"), [(1.0, None), (4.0, "slow")])
def test_waiting_weighs_more_than_decoding(wait_weight: float, where: str | None) -> None:
    """The fast replica is free in 8 s and takes 10 s, the slow one 20 s at once: 18 against 20, or 42 against 20."""
    engines = {"fast": EngineConstants(1.0), "slow": EngineConstants(2.0)}
    scheduler = preset("late", engines=engines, wait_weight=wait_weight)
    scheduler.replicas_changed([ReplicaState("fast", "m", "fast")], 0.0)
    assert scheduler.arrive(Call("first", "m", 0.0), exactly(8), 0.0) == [Start("first", "fast")]
    scheduler.replicas_changed([ReplicaState("fast", "m", "fast"), ReplicaState("slow", "m", "slow")], 0.0)
    decisions = scheduler.arrive(Call("second", "m", 0.0), exactly(10), 0.0)
    assert [d.replica for d in decisions if isinstance(d, Start)] == ([] if where is None else [where])
    if where is None:
        held = scheduler.explain("second", 0.0)
        assert held is not None
        assert [round(c.own_s) for c in held.candidates] == [18, 20], "the receipt tells plain seconds"


def many(seed: int, look_at_all: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Costs of what a walk over 300 waiting calls and 90 replicas starts, looking at all of them or at a part."""
    monkeypatch.setattr("swarmx.late.LOOK_AT_ALL", look_at_all)
    rng = np.random.default_rng(seed)
    kinds = {"fast": 1.0, "mid": 0.6, "slow": 0.35}
    engines = {k: EngineConstants(0.015 / v, 0.0005 / v, 1.5e-7 / v, 5e-5 / v) for k, v in kinds.items()}
    scheduler = preset("late", engines=engines)
    states = [
        ReplicaState(f"r{i}", "m", k, slots=8, kv_capacity_tokens=60_000) for i, k in enumerate(sorted(kinds) * 30)
    ]
    scheduler.replicas_changed([replace(s, draining=True) for s in states], 0.0)
    for i in range(900):
        call = Call(f"c{i}", "m", i * 1e-3, prompt_tokens=int(rng.integers(50, 3000)))
        scheduler.arrive(call, exactly(float(rng.lognormal(5, 1))), i * 1e-3)
    costs: dict[str, float] = {}
    start = scheduler._start

    def watched(waiting, i, now):  # type: ignore[no-untyped-def]
        own, harm, *_ = Completion().terms(waiting, scheduler.cluster, now)
        costs[waiting.call.id] = float(own[i] + harm[i])
        return start(waiting, i, now)

    scheduler._start = watched  # type: ignore[method-assign]
    scheduler.replicas_changed(states, 1.0)
    return costs


def test_looking_at_a_part_of_many_replicas_costs_within_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    for seed in range(3):
        everything, part = (many(seed, limit, monkeypatch) for limit in (10**6, 8))
        assert len(part) == pytest.approx(len(everything), rel=0.01)
        both = everything.keys() & part.keys()
        assert len(both) >= 600
        ratios.append(sum(part[c] for c in both) / sum(everything[c] for c in both))
    assert np.mean(ratios) < 1.01


def test_a_predictor_that_is_always_wrong_loses_its_word_and_the_fallback_answers() -> None:
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0")], 0.0)
    sources = []
    for i in range(60):
        scheduler.arrive(Call(f"c{i}", "m", float(i), type="t"), Prediction(QuantileGrid.point(5000.0)), float(i))
        sources.append(scheduler._bound[f"c{i}"].prediction.source)
        scheduler.finished(CallRecord(f"c{i}", "m", float(i), "ok", type="t", output_tokens=10), i + 0.5)
    assert sources[0] == "neural"
    assert sources[-1] == "per_type"
    assert not scheduler.intake.trust._open


def test_calls_in_flight_and_waiting_are_looked_at_anew_when_the_predictor_loses_its_word() -> None:
    """Two slots, one of them long taken; ten calls end in the other and show that lengths were far too large."""
    scheduler = preset("late", engines=KNOWN)
    scheduler.replicas_changed([replica("r0", slots=2)], 0.0)
    for i in range(14):
        scheduler.arrive(Call(f"c{i}", "m", 0.0, type="t"), Prediction(QuantileGrid.point(50_000.0)), 0.0)
    long, ended = "c0", 0
    while ended < 10:
        (other,) = (call for call in scheduler._bound if call != long)
        scheduler.finished(CallRecord(other, "m", 0.0, "ok", type="t", output_tokens=10), 1.0 + ended)
        ended += 1
    assert not scheduler.intake.trust.holds
    assert {w.prediction.source for w in scheduler.queue} == {"pool_mean"}
    assert max(w.lengths.mean for w in scheduler.queue) < 100
    scheduler.tick(12.0)
    row = scheduler.cluster.flights[long].row
    assert scheduler.cluster.flight_table()[row, -1] < 100  # the largest quantile of what is expected of it

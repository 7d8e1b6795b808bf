"""What is special about each discipline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.callgraph import CallGraph, GraphBook, Node
from swarmx.engine import EngineConstants
from swarmx.fairness import jain
from swarmx.ordering import Asked, LaneOrder, Order
from swarmx.ordering.edf import Edf
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.gittins import Gittins, inverse_index
from swarmx.ordering.justitia import Justitia
from swarmx.ordering.las import Las
from swarmx.ordering.mlfq import Mlfq
from swarmx.ordering.priority import Priority
from swarmx.ordering.ready_list import ReadyList
from swarmx.ordering.round_robin import RoundRobin
from swarmx.ordering.saga_afs import SagaAfs
from swarmx.ordering.sjf import Sjf
from swarmx.ordering.spoq_waves import SpoqWaves
from swarmx.ordering.vtc import Vtc
from swarmx.presets import preset
from swarmx.quantiles import LEVELS, QuantileGrid, tail_excess
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start
from swarmx.waiting import lengths_of


def sure(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


def scheduler_with(order: Order | LaneOrder, slots: int = 1) -> Scheduler:
    scheduler = preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order=order, tier="neural")
    scheduler.replicas_changed([ReplicaState("r", "m", "d", slots=slots)], 0.0)
    return scheduler


def served(scheduler: Scheduler, tokens: dict[str, float], count: int, each_s: float = 1.0) -> list[str]:
    """Ids in the order of their starts, one after another on one slot."""
    out: list[str] = []
    running = [c for c in scheduler.cluster.flights]
    now = 100.0
    while len(out) < count and running:
        now += each_s
        name = running.pop(0)
        record = CallRecord(name, "m", 0.0, "ok", output_tokens=int(tokens.get(name, 1)))
        started = [d.call_id for d in scheduler.finished(record, now) if isinstance(d, Start)]
        out += started
        running += started
    return out


def asked(call: Call, tokens: float = 10.0, **more: object) -> Asked:
    prediction = sure(tokens)
    return Asked(call, prediction, lengths_of(prediction.tokens, None), **more)  # type: ignore[arg-type]


def fill(scheduler: Scheduler, calls: list[Call], tokens: float = 10.0) -> None:
    scheduler.arrive(Call("first", "m", 0.0, tenant="zero", workflow_id="zero"), sure(1.0), 0.0)
    for call in calls:
        scheduler.arrive(call, sure(tokens), call.arrival_s)


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 12), min_size=2, max_size=5))
def test_round_robin_numbers_of_starts_differ_by_at_most_one_among_those_that_wait(counts: list[int]) -> None:
    scheduler = scheduler_with(RoundRobin("tenant"))
    calls = [Call(f"t{t}.{i}", "m", 1.0, tenant=f"t{t}") for t, n in enumerate(counts) for i in range(n)]
    fill(scheduler, calls)
    order = served(scheduler, {}, len(calls))
    assert len(order) == len(calls)
    got = [0] * len(counts)
    for name in order:
        tenant = int(name[1 : name.index(".")])
        got[tenant] += 1
        waiting = [got[t] for t, n in enumerate(counts) if got[t] < n]
        assert not waiting or max(waiting) - min(waiting) <= 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), charge=st.sampled_from(["calls", "tokens"]))
def test_fair_share_keeps_charges_per_weight_within_one_largest_call_each(seed: int, charge: str) -> None:
    rng = np.random.default_rng(seed)
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    scheduler = scheduler_with(FairShare(weights, charge=charge))  # type: ignore[arg-type]
    tokens = {f"{t}{i}": float(rng.integers(1, 40)) for t in weights for i in range(60)}
    scheduler.arrive(Call("first", "m", 0.0, tenant="zero"), sure(1.0), 0.0)
    for name in sorted(tokens, key=lambda n: (rng.random(), n)):
        scheduler.arrive(Call(name, "m", 1.0, tenant=name[0]), sure(tokens[name]), 1.0)
    order = served(scheduler, tokens, 100)
    got = dict.fromkeys(weights, 0.0)
    count = dict.fromkeys(weights, 0)
    most = 1.0 if charge == "calls" else 40.0
    for name in order:
        got[name[0]] += 1.0 if charge == "calls" else tokens[name]
        count[name[0]] += 1
        if max(count.values()) == 60:
            break
        per = {t: got[t] / w for t, w in weights.items()}
        for s in weights:
            for t in weights:
                assert per[s] - per[t] <= most / weights[s] + most / weights[t] + 1e-6


def test_fair_share_is_fair_for_weights_1_2_4_and_a_newcomer_does_not_monopolise() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    scheduler = scheduler_with(FairShare({**weights, "new": 1.0}, charge="calls"))
    fill(scheduler, [Call(f"{t}{i}", "m", 1.0, tenant=t) for t in weights for i in range(400)])
    early = served(scheduler, {}, 350)
    per = [sum(n[0] == t for n in early) / w for t, w in weights.items()]
    assert jain(per) >= 0.99
    for i in range(50):
        scheduler.arrive(Call(f"new{i}", "m", 500.0, tenant="new"), sure(10.0), 500.0)
    late = served(scheduler, {}, 80)
    assert sum(n.startswith("new") for n in late) <= 80 / 8 + 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_floor_holds_against_better_classes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scheduler = scheduler_with(FairShare(floors={"batch": 0.3}))
    tokens = {f"u{i}": float(rng.integers(1, 30)) for i in range(120)} | {f"b{i}": 30.0 for i in range(60)}
    scheduler.arrive(Call("first", "m", 0.0, tenant="zero"), sure(1.0), 0.0)
    for name, n in tokens.items():
        low = name[0] == "b"
        tenant, priority = ("batch", "low") if low else ("urgent", "high")
        scheduler.arrive(Call(name, "m", 1.0, tenant=tenant, priority=priority), sure(n), 1.0)  # type: ignore[arg-type]
    batch = total = 0.0
    for name in served(scheduler, tokens, 100):
        total += tokens[name]
        batch += tokens[name] * (name[0] == "b")
        assert batch >= 0.3 * total - 30.0 - 1e-6


def test_vtc_charges_what_was_served_not_what_was_predicted() -> None:
    scheduler = scheduler_with(Vtc(prompt_weight=1.0, output_weight=2.0))
    fill(scheduler, [Call(f"{t}{i}", "m", 1.0, tenant=t, prompt_tokens=1) for t in "ab" for i in range(10)])
    order = served(scheduler, {f"a{i}": 30.0 for i in range(10)}, 12)
    assert sum(n[0] == "b" for n in order) >= 9


def test_las_prefers_the_program_that_had_least() -> None:
    scheduler = scheduler_with(Las())
    fill(scheduler, [Call(f"{w}{i}", "m", 1.0, workflow_id=w, prompt_tokens=1) for w in "ab" for i in range(4)])
    order = served(scheduler, {f"a{i}": 50.0 for i in range(4)} | {f"b{i}": 5.0 for i in range(4)}, 8)
    assert order == ["a0", "b0", "b1", "b2", "b3", "a1", "a2", "a3"]


def test_mlfq_sinks_by_use_and_is_lifted_by_the_boost() -> None:
    order = Mlfq(quanta_s=(2.0, 8.0), boost_s=30.0)
    scheduler = scheduler_with(order)
    order.passed(0.0)
    waiting = scheduler.intake.entry(Call("c", "m", 0.0, workflow_id="w"), sure(1.0), 0.0, scheduler.cluster, False)
    for seconds, level in ((1.0, 0), (1.5, 1), (8.0, 2), (50.0, 2)):
        order.started(waiting, 0.0)
        order.stopped(waiting, 1.0, seconds, True)
        assert order.score("w") == level
    order.passed(31.0)
    assert order.score("w") == 0
    with pytest.raises(ValueError, match="positive seconds"):
        Mlfq(quanta_s=(0.0,))


def test_short_turns_do_not_wait_for_long_agents_under_mlfq() -> None:
    scheduler = scheduler_with(Mlfq(boost_s=1e9))
    fill(scheduler, [Call(f"long{i}", "m", 1.0, workflow_id="long") for i in range(6)])
    first = served(scheduler, {}, 2, each_s=20.0)
    assert first == ["long0", "long1"]
    scheduler.arrive(Call("short", "m", 150.0, workflow_id="short"), sure(1.0), 150.0)
    assert served(scheduler, {}, 1, each_s=60.0) == ["short"]


@settings(deadline=None)
@given(st.lists(st.floats(1, 1000), min_size=2, max_size=8, unique=True))
def test_justitia_is_shortest_first_by_cost_among_agents_that_arrive_together(sizes: list[float]) -> None:
    order = Justitia(capacity=1e3)
    keys = []
    for i, tokens in enumerate(sizes):
        one = asked(Call(f"c{i}", "m", 0.0, prompt_tokens=10, workflow_id=f"w{i}"), tokens)
        order.arrived(one)
        keys.append(order.key(one))
    assert np.argsort(keys).tolist() == np.argsort(sizes).tolist()


def test_an_arrival_changes_nobody_elses_virtual_finish() -> None:
    order = Justitia(capacity=100.0)
    one = asked(Call("a", "m", 0.0, workflow_id="a"), 20.0, now=0.0)
    order.arrived(one)
    before = order.key(one)
    for i in range(5):
        order.arrived(asked(Call(f"b{i}", "m", 1.0, workflow_id=f"b{i}"), 5.0, now=1.0 + i))
    assert order.key(one) == before


def test_the_clock_of_justitia_matches_ideal_sharing() -> None:
    order = Justitia(capacity=50.0)
    order.arrived(asked(Call("a", "m", 0.0, workflow_id="a"), 20.0, now=0.0))  # cost 200
    order.arrived(asked(Call("b", "m", 0.0, workflow_id="b"), 10.0, now=0.0))  # cost 50: done at t = 2
    late = asked(Call("c", "m", 4.0, workflow_id="c"), 10.0, now=4.0)
    order.arrived(late)
    assert order.key(late) == pytest.approx(50 + 2 * 50 + 50)  # V = 50 at t = 2, then a alone: 100 more by t = 4


def test_urgency_grows_with_lateness_in_both_variants() -> None:
    for variant in ("task_sum", "earliest"):
        order = SagaAfs(variant)  # type: ignore[arg-type]
        order.arrived(asked(Call("a", "m", 0.0, workflow_id="w", tenant="t"), 10.0, now=0.0))
        found = []
        for now in (0.0, 5.0, 10.0, 14.0, 16.0, 30.0, 100.0):
            order.passed(now)
            found.append(order.urgency("t"))
        assert found == sorted(found)
        assert found[0] > 0
        assert len(set(found)) == len(found)


def test_the_two_variants_of_agent_fair_share_differ_as_paper_and_code_do() -> None:
    values = {}
    for variant in ("task_sum", "earliest"):
        order = SagaAfs(variant)  # type: ignore[arg-type]
        order.arrived(asked(Call("a", "m", 0.0, workflow_id="a", tenant="t", deadline_s=10.0), 20.0))
        order.arrived(asked(Call("b", "m", 0.0, workflow_id="b", tenant="t", deadline_s=100.0), 20.0))
        order.passed(0.0)
        values[variant] = order.urgency("t")
    assert values["task_sum"] == pytest.approx(20 / 10 + 20 / 100)
    assert values["earliest"] == pytest.approx(40 / 10)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 500), min_size=LEVELS.size, max_size=LEVELS.size))
def test_the_gittins_key_is_at_most_the_mean_and_the_length_itself_when_that_is_known(values: list[float]) -> None:
    grid = QuantileGrid(LEVELS, np.sort(values))
    assert inverse_index(grid.values, float(tail_excess(grid))) <= float(grid.mean()) * (1 + 1e-9) + 1e-9
    known = QuantileGrid.point(values[0])
    assert inverse_index(known.values, 0.0) == pytest.approx(values[0])


def test_gittins_prefers_a_likely_short_call_over_a_sure_one_of_the_same_mean() -> None:
    gamble = QuantileGrid(LEVELS, np.where(LEVELS < 0.85, 10.0, 300.0))
    call = Call("c", "m", 0.0)
    risky = Asked(call, Prediction(gamble), lengths_of(gamble, None))
    mean = float(gamble.mean())
    assert Gittins().key(risky) < Gittins().key(asked(call, mean))
    assert Sjf().key(risky) == pytest.approx(Sjf().key(asked(call, mean)))


def test_edf_takes_deadlines_and_slack_subtracts_the_work() -> None:
    soon, later = Call("a", "m", 0.0, deadline_s=10.0), Call("b", "m", 0.0, deadline_s=12.0)
    assert Edf().key(asked(soon)) < Edf().key(asked(later))
    assert Edf(slack=True).key(asked(soon, 1.0)) > Edf(slack=True).key(asked(later, 8.0))
    assert Edf(limits_s={"gold": 5.0}).key(asked(Call("c", "m", 3.0, tenant="gold"))) == 8.0


def test_levels_of_the_priority_discipline_never_mix() -> None:
    order = Priority(levels={"chat": 0, "bulk": 2})
    keys = [
        order.key(asked(Call("c", "m", t, type=kind))) for kind, t in (("chat", 1e9), ("other", 5.0), ("bulk", 0.0))
    ]
    assert keys == sorted(keys)


DIAMOND = CallGraph(
    {"w/a": Node((), 1.0), "w/b": Node((), 1.0), "w/c": Node(("w/a",), 9.0), "w/d": Node(("w/a", "w/b"), 2.0)}
)


def test_a_wave_waits_for_the_whole_level_below_and_a_ready_list_does_not() -> None:
    for order, expected in (
        (SpoqWaves(GraphBook({"w": DIAMOND})), []),
        (ReadyList(GraphBook({"w": DIAMOND})), ["w/c"]),
    ):
        scheduler = scheduler_with(order, slots=2)
        for name in ("w/a", "w/b"):
            scheduler.arrive(Call(name, "m", 0.0, workflow_id="w"), sure(1.0), 0.0)
        scheduler.finished(CallRecord("w/a", "m", 0.0, "ok", output_tokens=1), 1.0)
        started = scheduler.arrive(Call("w/c", "m", 1.0, workflow_id="w"), sure(9.0), 1.0)
        assert [d.call_id for d in started if isinstance(d, Start)] == expected
        after = scheduler.finished(CallRecord("w/b", "m", 0.0, "ok", output_tokens=1), 2.0)
        assert [d.call_id for d in after if isinstance(d, Start)] == (["w/c"] if not expected else [])


def test_a_failed_call_does_not_hold_its_wave_for_ever() -> None:
    scheduler = scheduler_with(SpoqWaves(GraphBook({"w": DIAMOND})), slots=2)
    for name in ("w/a", "w/b"):
        scheduler.arrive(Call(name, "m", 0.0, workflow_id="w"), sure(1.0), 0.0)
    scheduler.finished(CallRecord("w/a", "m", 0.0, "ok", output_tokens=1), 1.0)
    scheduler.arrive(Call("w/c", "m", 1.0, workflow_id="w"), sure(9.0), 1.0)
    after = scheduler.finished(CallRecord("w/b", "m", 0.0, "error"), 2.0)
    assert [d.call_id for d in after if isinstance(d, Start)] == ["w/c"]


def test_the_longest_path_goes_first_in_a_ready_list() -> None:
    order = ReadyList(GraphBook({"w": DIAMOND}))
    keys = {n: order.key(asked(Call(n, "m", 0.0, workflow_id="w"))) for n in DIAMOND.nodes}
    assert keys["w/a"] < keys["w/b"]
    assert keys["w/c"] < keys["w/d"]


def test_justitia_without_a_capacity_keeps_time_by_what_is_served() -> None:
    order = Justitia()
    scheduler = preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order=order, aging=None, tier="neural")
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    sure = Prediction(QuantileGrid.point(100.0), "oracle")
    for i in range(3):
        scheduler.arrive(Call(f"c{i}", "m", 0.0, prompt_tokens=10, workflow_id=f"w{i}"), sure, 0.0)
    cost = 10 * 100 + 100**2 / 2
    scheduler.progress("c0", 50.0, 50.0)
    assert order._time == pytest.approx((10 * 50 + 50**2 / 2) / 3)  # three agents share what has been served
    scheduler.finished(CallRecord("c0", "m", 0.0, "ok", output_tokens=70), 70.0)  # shorter than expected
    assert order._time == pytest.approx(cost / 3)
    for i in (1, 2):
        scheduler.finished(CallRecord(f"c{i}", "m", 0.0, "ok", output_tokens=100), 100.0 * i)
    assert not order._served and order._time == pytest.approx(cost)  # nothing is left under ideal sharing either

"""Caps, buckets, predicted misses, stuck calls: who is refused, and whether the stated retry time is honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.admission import Admission, Gate, Outlook, Rate
from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, Preempt, Reject, ReplicaState, Start
from swarmx.waiting import Waiting, lengths_of

OUTLOOK = Outlook(10.0, 0.1, 1.0, 0.0, True)


def sure(tokens: float) -> Prediction:
    return Prediction(QuantileGrid.point(tokens), "oracle")


def waiting(name: str, tokens: float = 10.0, **more: object) -> Waiting:
    call = Call(name, "m", 0.0, **more)  # type: ignore[arg-type]
    prediction = sure(tokens)
    return Waiting(call, prediction, lengths_of(prediction.tokens, None), (1, 0.0, 0.0, name), 0.0)


def with_rules(rules: Admission, slots: int = 1) -> Scheduler:
    scheduler = preset("late", engines={"d": EngineConstants(1.0)}, admission=rules)
    scheduler.replicas_changed([ReplicaState("r0", "m", "d", slots=slots)], 0.0)
    return scheduler


def test_a_full_class_or_tenant_is_refused_with_the_reason_and_a_receipt() -> None:
    scheduler = with_rules(Admission(class_caps={"normal": 1}, tenant_cap=5))
    scheduler.arrive(Call("runs", "m", 0.0), sure(10), 0.0)
    assert scheduler.arrive(Call("waits", "m", 0.0), sure(10), 0.0) == []
    (refused,) = scheduler.arrive(Call("c", "m", 0.0), sure(10), 0.0)
    assert isinstance(refused, Reject)
    assert "1 calls of class normal wait already; the limit is 1" in refused.reason
    assert refused.receipt is not None
    assert refused.receipt.action == "reject"
    assert refused.retry_after_s == pytest.approx(10.0)
    (start,) = scheduler.finished(CallRecord("runs", "m", 0.0, "ok", output_tokens=10), 10.0)
    assert isinstance(start, Start)
    assert scheduler.arrive(Call("c", "m", 10.0), sure(10), 10.0) == []


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(1, 40)), min_size=1, max_size=40))
def test_a_bucket_never_lets_through_more_than_rate_and_burst(arrivals: list[tuple[float, float]]) -> None:
    gate = Gate(Admission(rates={"default": Rate(per_s=10.0, burst=50.0)}))
    now = passed = 0.0
    for i, (gap, tokens) in enumerate(arrivals):
        now += gap
        if gate.judge(waiting(f"c{i}", tokens), OUTLOOK, now) is None:
            passed += tokens
    assert passed <= 50.0 + 10.0 * now + 1e-6


def test_a_retry_after_the_stated_time_is_let_in_and_before_it_is_not() -> None:
    for early in (True, False):
        gate = Gate(Admission(rates={"default": Rate(per_s=2.0, burst=20.0)}))
        assert gate.judge(waiting("a", 15.0), OUTLOOK, 0.0) is None
        refusal = gate.judge(waiting("b", 15.0), OUTLOOK, 0.0)
        assert refusal is not None
        assert refusal.retry_after_s == pytest.approx(5.0)
        later = refusal.retry_after_s * (0.99 if early else 1.0001)
        assert (gate.judge(waiting("b", 15.0), OUTLOOK, later) is None) != early


def test_a_predicted_miss_is_shed_and_its_retry_time_is_when_the_backlog_has_gone() -> None:
    scheduler = with_rules(Admission(shed=True))
    scheduler.arrive(Call("runs", "m", 0.0), sure(40), 0.0)
    scheduler.arrive(Call("waits", "m", 0.0), sure(40), 0.0)
    (refused,) = scheduler.arrive(Call("c", "m", 0.0, deadline_s=50.0), sure(10), 0.0)
    assert isinstance(refused, Reject)
    assert "after its deadline" in refused.reason
    assert refused.retry_after_s == pytest.approx(40 + 40 / 2 + 10 - 50)
    assert scheduler.arrive(Call("d", "m", 0.0, deadline_s=200.0), sure(10), 0.0) == []


def test_nothing_is_shed_from_an_empty_pool_that_can_make_it() -> None:
    scheduler = with_rules(Admission(shed=True, slo_s={"normal": 11.0}))
    (start,) = scheduler.arrive(Call("c", "m", 0.0), sure(10), 0.0)
    assert isinstance(start, Start)


def test_a_stuck_call_is_sent_again_then_given_up_and_its_slot_comes_back() -> None:
    scheduler = with_rules(Admission(stall_s=30.0, retries=1), slots=2)
    scheduler.arrive(Call("stuck", "m", 0.0), sure(10), 0.0)
    scheduler.arrive(Call("alive", "m", 0.0), sure(1000), 0.0)
    scheduler.arrive(Call("next", "m", 1.0), sure(10), 1.0)
    scheduler.progress("alive", 29, 29.0)
    assert not any(isinstance(d, Preempt) for d in scheduler.tick(29.0))
    decisions = scheduler.tick(30.0)
    assert [type(d) for d in decisions] == [Preempt, Start]
    assert [d.call_id for d in decisions] == ["stuck", "next"]  # type: ignore[union-attr]
    again = scheduler.finished(CallRecord("next", "m", 0.0, "ok", output_tokens=10), 40.0)
    assert [d.call_id for d in again if isinstance(d, Start)] == ["stuck"]
    scheduler.progress("alive", 69, 69.0)
    assert [type(d) for d in scheduler.tick(71.0)] == [Preempt, Reject]
    assert list(scheduler.cluster.flights) == ["alive"]
    assert not len(scheduler.queue)


def test_progress_keeps_a_slow_call_alive_and_repeated_reports_do_not() -> None:
    scheduler = with_rules(Admission(stall_s=10.0))
    scheduler.arrive(Call("slow", "m", 0.0), sure(10), 0.0)
    scheduler.progress("slow", 1, 8.0)
    assert scheduler.tick(12.0) == []
    scheduler.progress("slow", 1, 17.0)
    assert [type(d) for d in scheduler.tick(18.5)][:1] == [Preempt]

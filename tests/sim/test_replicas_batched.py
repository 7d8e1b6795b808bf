"""The batched engine against a small-step integration of the same model, and the laws that it promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_schedulers import InTurn

from swarmx.engine import EngineConstants
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Workload, simulate
from swarmx.sim.job import Job
from swarmx.sim.replicas_batched import BatchedReplica
from swarmx.types import Call

ENGINE = EngineConstants(0.015, 0.002, 3e-6, 4e-4)
DT = 2e-4


def run(spec, calls):
    """calls : (arrival, prompt, output) rows; returns the table of one engine that gets them all."""
    flows = [SimWorkflow(f"w{i}", t, (SimCall("c", out, prompt_tokens=p),)) for i, (t, p, out) in enumerate(calls)]
    return simulate(Workload(tuple(flows)), Cluster((spec,)), InTurn())


def stepped(spec, calls, dt=DT):
    """(first token, end) of each call by stepping through time; written from the model, not from the code."""
    service, v = spec.service, spec.speed
    pending = list(range(len(calls)))
    waiting, admitted = [], []  # ids; admitted in order
    made = np.zeros(len(calls))
    prefill = np.zeros(len(calls))
    in_prefill, decoding = [], []
    first, end = np.full(len(calls), np.nan), np.full(len(calls), np.nan)
    closed, now = False, 0.0

    def held():
        return sum(calls[i][1] + made[i] for i in admitted)

    while np.isnan(end).any():
        while pending and calls[pending[0]][0] <= now:
            waiting.append(pending.pop(0))
        while waiting and len(admitted) < spec.slots and not closed:
            i = waiting[0]
            if admitted and held() + calls[i][1] + made[i] + spec.reserve_tokens > spec.kv_capacity_tokens:
                break
            waiting.pop(0)
            admitted.append(i)
            in_prefill.append(i)
            prefill[i] = calls[i][1] + made[i]
        left = dt
        if in_prefill and not spec.chunk_tokens:
            prefill[in_prefill[0]] -= left * v / service.p
        elif in_prefill or decoding:
            context = sum(calls[i][1] + made[i] for i in decoding)
            step = service.a + service.b * len(decoding) + service.c * context
            step += service.p * spec.chunk_tokens if in_prefill else 0.0
            moved = left * v / step
            for i in decoding:
                made[i] += moved
            if in_prefill:
                prefill[in_prefill[0]] -= moved * spec.chunk_tokens
        now += dt
        while in_prefill and prefill[in_prefill[0]] <= 0:
            i = in_prefill.pop(0)
            made[i] += 1
            decoding.append(i)
            first[i] = now if np.isnan(first[i]) else first[i]
        for i in [i for i in decoding if made[i] >= calls[i][2]]:
            decoding.remove(i)
            admitted.remove(i)
            end[i] = now
            closed = False
        while held() > spec.kv_capacity_tokens and len(admitted) > 1 and (decoding or not spec.chunk_tokens):
            i = admitted.pop()
            (decoding if i in decoding else in_prefill).remove(i)
            waiting.insert(0, i)
            closed = True
    return first, end


def some_calls(rng, n=14, prompt=60, output=40):
    arrivals = np.cumsum(rng.exponential(0.4, n))
    return [(float(t), int(rng.integers(5, 2 * prompt)), float(rng.integers(2, 2 * output))) for t in arrivals]


@pytest.mark.parametrize(
    "spec",
    [
        ReplicaSpec("r", batched=True, slots=4, service=ENGINE),
        ReplicaSpec("r", batched=True, slots=4, service=ENGINE, speed=0.6, chunk_tokens=16),
        ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=400, reserve_tokens=20),
        ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=300),
        ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=300, chunk_tokens=8),
    ],
    ids=["stalls", "chunked", "kv_reserve", "kv_overflow", "kv_overflow_chunked"],
)
def test_engine_equals_small_steps(spec):
    calls = some_calls(np.random.default_rng(3))
    table = run(spec, calls)
    first, end = stepped(spec, calls)
    # every event is late by at most one step, and one event delays what comes after it
    tolerance = 3 * DT * len(calls)
    np.testing.assert_allclose(table.first_token_s, first, atol=tolerance)
    np.testing.assert_allclose(table.finished_s, end, atol=tolerance)


def test_overflow_case_does_overflow():
    spec = ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=300)
    replica = BatchedReplica(spec, 0)
    for row, (t, prompt, output) in enumerate(some_calls(np.random.default_rng(3))):
        while replica.due_s <= t:
            replica.wake(replica.due_s)
        replica.submit(a_job(row, prompt, output), t)
    while replica.due_s < np.inf:
        replica.wake(replica.due_s)
    assert replica.recomputed > 0
    assert len(replica.ended) == 14


def a_job(row, prompt, output, blocks=(), answer_blocks=(), workflow_arrival_s=0.0):
    sim = SimCall(str(row), output, prompt_tokens=prompt, prefix_blocks=blocks, output_blocks=answer_blocks)
    call = Call(str(row), "model", 0.0, "", prompt, prefix_blocks=blocks, workflow_arrival_s=workflow_arrival_s)
    return Job(call, sim, row, None, 0, None)


def test_one_call_alone_takes_prefill_and_a_token_time_for_each_further_token():
    spec = ReplicaSpec("r", batched=True, slots=4, service=ENGINE, speed=0.5)
    table = run(spec, [(0.0, 100, 51.0)])
    assert table.first_token_s[0] == pytest.approx(100 * 4e-4 / 0.5)
    # 50 tokens while the context grows from 101 to 151
    expected = 50 * (0.015 + 0.002 + 3e-6 * 126) / 0.5
    assert table.finished_s[0] - table.first_token_s[0] == pytest.approx(expected)


def test_a_prefill_has_its_base_besides_its_tokens():
    spec = ReplicaSpec("r", batched=True, slots=4, service=ENGINE, speed=0.5, prefill_base_s=0.05)
    assert run(spec, [(0.0, 100, 5.0)]).first_token_s[0] == pytest.approx((0.05 + 100 * 4e-4) / 0.5)


def test_without_b_c_p_a_batched_replica_is_a_job_replica_but_for_the_first_token():
    calls = [(0.3 * i, 10, float(5 + i % 7)) for i in range(40)]
    service = EngineConstants(0.1)
    batched = run(ReplicaSpec("r", batched=True, slots=3, service=service), calls)
    job = run(ReplicaSpec("r", slots=3, service=service), [(t, p, out - 1) for t, p, out in calls])
    np.testing.assert_allclose(batched.finished_s, job.finished_s, atol=1e-9)


rows = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 150), st.floats(1, 120)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(1, 5), st.integers(60, 400), st.sampled_from([0, 8]), st.integers(0, 30))
def test_kv_is_never_over_committed_and_every_call_ends_with_all_its_tokens(calls, slots, kv, chunk, reserve):
    spec = ReplicaSpec(
        "r",
        batched=True,
        slots=slots,
        service=ENGINE,
        kv_capacity_tokens=kv,
        chunk_tokens=chunk,
        reserve_tokens=reserve,
    )
    replica = BatchedReplica(spec, 0)
    calls = sorted((t, min(p, kv - 2), out) for t, p, out in calls)
    for row, (t, prompt, output) in enumerate(calls):
        while replica.due_s <= t:
            replica.wake(replica.due_s)
        replica.submit(a_job(row, prompt, output), t)
    now = calls[-1][0]
    while replica.due_s < np.inf:
        middle = (now + replica.due_s) / 2
        # one token may come on top: the one that a prefill ends with
        assert replica.kv_tokens(middle) <= kv + slots
        assert replica.running <= slots
        now = replica.due_s
        replica.wake(now)
    assert len(replica.ended) == len(calls)
    for job in replica.ended:
        _, prompt, output = calls[job.row]
        assert job.produced == pytest.approx(min(output, kv - prompt))
    assert replica.kv_tokens(now) == 0
    assert replica.waiting_count == replica.running == 0


def test_speed_change_stretches_what_is_left():
    spec = ReplicaSpec("r", batched=True, slots=2, service=EngineConstants(0.1))
    replica = BatchedReplica(spec, 0)
    replica.submit(a_job(0, 10, 101.0), 0.0)
    assert replica.due_s == pytest.approx(10.0)
    replica.set_speed(0.25, 4.0)
    assert replica.due_s == pytest.approx(4.0 + 6.0 / 0.25)


def test_a_removed_call_keeps_its_tokens_and_prefills_them_again_elsewhere():
    spec = ReplicaSpec("r", batched=True, slots=2, service=EngineConstants(0.1, 0.0, 0.0, 0.01))
    one, two = BatchedReplica(spec, 0), BatchedReplica(spec, 1)
    job = a_job(0, 100, 51.0)
    one.submit(job, 0.0)
    one.wake(1.0)  # 100 tokens prefilled
    assert one.remove(job, 2.0)
    assert job.produced == pytest.approx(1 + 10)
    assert one.running == 0
    assert one.kv_tokens(2.0) == 0
    two.submit(job, 3.0)
    assert two.due_s == pytest.approx(3.0 + 111 * 0.01)


def prefix_engine(kv=1000, slots=4):
    service = EngineConstants(0.1, 0.0, 0.0, 0.01)
    return BatchedReplica(
        ReplicaSpec("r", batched=True, slots=slots, service=service, kv_capacity_tokens=kv, block_tokens=10), 0
    )


def finish(replica):
    while replica.due_s < np.inf:
        now = replica.due_s
        replica.wake(now)
    return now


def test_a_prompt_seen_before_prefills_its_new_part_only():
    replica = prefix_engine()
    replica.submit(a_job(0, 105, 2.0, tuple(range(10))), 0.0)
    assert replica.due_s == pytest.approx(1.05)
    now = finish(replica)
    again = a_job(1, 125, 2.0, (*range(10), 98, 99))
    replica.submit(again, now)
    assert again.cached_tokens == 100
    assert replica.due_s == pytest.approx(now + 0.25)


def test_blocks_of_running_calls_are_held_once():
    replica = prefix_engine()
    for row in range(3):
        replica.submit(a_job(row, 105, 50.0, tuple(range(10))), 0.0)
    assert replica.kv_tokens(0.0) == 100 + 3 * 5


def test_a_fully_cached_prompt_still_prefills_one_token():
    replica = prefix_engine()
    replica.submit(a_job(0, 100, 2.0, tuple(range(10))), 0.0)
    now = finish(replica)
    replica.submit(a_job(1, 100, 2.0, tuple(range(10))), now)
    assert replica.due_s == pytest.approx(now + 0.01)


def test_the_blocks_of_an_answer_serve_the_next_turn():
    replica = prefix_engine()
    replica.submit(a_job(0, 100, 21.0, tuple(range(10)), (50, 51)), 0.0)
    now = finish(replica)
    turn = a_job(1, 130, 2.0, (*range(10), 50, 51, 52))
    replica.submit(turn, now)
    assert turn.cached_tokens == 120


def test_the_longest_unused_blocks_go_first_when_room_is_needed():
    replica = prefix_engine(kv=400)
    now = 0.0
    for row, start in enumerate((0, 100, 200, 300)):  # 4 x 110 tokens do not fit into 400
        replica.submit(a_job(row, 110, 2.0, tuple(range(start, start + 11))), now)
        now = finish(replica)
    newest, oldest = a_job(8, 110, 2.0, tuple(range(300, 311))), a_job(9, 110, 2.0, tuple(range(11)))
    replica.submit(newest, now)
    now = finish(replica)
    replica.submit(oldest, now)
    assert newest.cached_tokens == 109  # all but the token that must be prefilled
    assert oldest.cached_tokens < 109


def test_a_crash_empties_cache_and_queue():
    replica = prefix_engine(slots=1)
    jobs = [a_job(row, 105, 50.0, tuple(range(10))) for row in range(3)]
    for job in jobs:
        replica.submit(job, 0.0)
    assert replica.clear(0.5) == jobs
    assert replica.due_s == np.inf
    fresh = a_job(5, 105, 2.0, tuple(range(10)))
    replica.submit(fresh, 1.0)
    assert fresh.cached_tokens == 0


def test_workflow_order_lets_the_older_workflow_in_first():
    spec = ReplicaSpec("r", batched=True, slots=1, service=EngineConstants(0.1), queue="workflow")
    replica = BatchedReplica(spec, 0)
    young, old = a_job(0, 1, 5.0, workflow_arrival_s=9.0), a_job(1, 1, 5.0, workflow_arrival_s=1.0)
    replica.submit(a_job(2, 1, 5.0), 0.0)
    replica.submit(young, 0.1)
    replica.submit(old, 0.2)
    finish(replica)
    assert [j.row for j in replica.ended] == [2, 1, 0]

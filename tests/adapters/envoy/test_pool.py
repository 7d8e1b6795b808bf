"""The pool without a proxy: holding, budgets, ownership, endpoints that go, records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from patience import PATIENCE_S

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.journal import Journal
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.ride import Refused, Ride
from swarmx.adapters.envoy.settings import read_settings
from swarmx.errors import BadInput
from swarmx.types import Call, CallRecord, ReplicaState

ONE = [ReplicaState("a:1", "m")]
TWO = [*ONE, ReplicaState("b:1", "m")]


def _pool(states: Sequence[ReplicaState] = ONE, preset: str = "late") -> Pool:
    pool = Pool(Lanes(preset), asyncio.get_running_loop().time, PickLimits(), Counters())
    pool.set_states(states)
    return pool


def _call(pool: Pool, call_id: str, **fields: object) -> Call:
    return Call(call_id, "m", pool.clock(), **fields)  # type: ignore[arg-type]


def test_held_calls_start_in_order_as_others_end() -> None:
    async def run() -> None:
        pool = _pool()
        first = await pool.pick(_call(pool, "1"), None, 2 * PATIENCE_S)
        waiting = [asyncio.create_task(pool.pick(_call(pool, str(i)), None, 2 * PATIENCE_S)) for i in (2, 3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        pool.end(first, "ok")
        second = await waiting[0]
        assert not waiting[1].done()
        pool.end(second, "error")
        pool.end(await waiting[1], "ok")
        assert not pool.rides and not pool.lanes.cluster.flights

    asyncio.run(run())


def test_a_call_is_answered_at_the_end_of_its_budget_and_counted_once() -> None:
    async def run() -> None:
        pool = _pool()
        rides = [await pool.pick(_call(pool, "1"), None, 0.05)]
        began = pool.clock()
        rides.append(await pool.pick(_call(pool, "2"), None, 0.05))
        assert 0.04 < pool.clock() - began < 0.5
        assert len(pool.lanes.cluster.flights) == 2
        for ride in rides:
            pool.end(ride, "ok")
        assert not pool.lanes.cluster.flights

    asyncio.run(run())


def test_a_picker_that_loses_the_queue_answers_what_it_holds_and_holds_no_more() -> None:
    async def run() -> None:
        pool = _pool(TWO)
        for name in ("1", "2"):
            await pool.pick(_call(pool, name), None, 2 * PATIENCE_S)
        held = asyncio.create_task(pool.pick(_call(pool, "3"), None, 2 * PATIENCE_S))
        await asyncio.sleep(0.01)
        pool.set_owner(False)
        assert (await asyncio.wait_for(held, PATIENCE_S)).address
        ride = await asyncio.wait_for(pool.pick(_call(pool, "4"), None, 2 * PATIENCE_S), PATIENCE_S)
        assert ride.lane is pool.lanes.standby and ride.lane.name == "power_of_two"
        pool.set_owner(True)
        later = asyncio.create_task(pool.pick(_call(pool, "5"), None, 2 * PATIENCE_S))
        await asyncio.sleep(0.01)
        assert not later.done()
        later.cancel()

    asyncio.run(run())


def test_calls_of_an_endpoint_that_is_gone_leave_the_book_and_are_not_sent_twice() -> None:
    async def run() -> None:
        pool = _pool(TWO)
        rides = [await pool.pick(_call(pool, name), None, 2 * PATIENCE_S) for name in ("1", "2")]
        gone = next(r for r in rides if r.address == "a:1")
        pool.set_states([TWO[1]])
        assert set(pool.lanes.cluster.flights) == {r.call.id for r in rides if r is not gone}
        pool.end(gone, "ok")  # its answer came all the same
        assert [r.call.id for r in pool.rides.values()] == [r.call.id for r in rides if r is not gone]

    asyncio.run(run())


def test_a_held_call_outlives_the_endpoint_that_goes() -> None:
    async def run() -> None:
        pool = _pool(TWO)
        rides = [await pool.pick(_call(pool, name), None, 2 * PATIENCE_S) for name in ("1", "2")]
        stays = next(r for r in rides if r.address == "b:1")
        held = asyncio.create_task(pool.pick(_call(pool, "3"), None, 2 * PATIENCE_S))
        await asyncio.sleep(0.01)
        pool.set_states([TWO[1]])
        await asyncio.sleep(0.01)
        assert not held.done()
        pool.end(stays, "ok")
        assert (await asyncio.wait_for(held, PATIENCE_S)).address == "b:1"

    asyncio.run(run())


def test_an_id_that_is_used_twice_at_a_time_is_told_apart() -> None:
    async def run() -> None:
        pool = _pool(preset="push")
        rides = [await pool.pick(_call(pool, name), None, 0.0) for name in ("same#1", "same", "same", "same")]
        assert len({ride.call.id for ride in rides}) == len(pool.rides) == 4
        for ride in rides:
            pool.end(ride, "ok")
        assert not pool.rides and not pool.lanes.cluster.flights

    asyncio.run(run())


def test_an_answer_that_nobody_read_teaches_no_length() -> None:
    async def run() -> None:
        pool = _pool(preset="push")
        before = pool.lanes.owner.intake.observed.expect(None)
        pool.end(await pool.pick(_call(pool, "1"), None, 0.0), "ok")
        assert pool.lanes.owner.intake.observed.expect(None) is before

    asyncio.run(run())


def test_prompt_tokens_follow_the_servers_own_count() -> None:
    async def run() -> None:
        pool = _pool(preset="push")
        for i in range(200):
            ride = await pool.pick(_call(pool, str(i), prompt_tokens=pool.tokens_of(3000)), None, 0.0)
            ride.answer.prompt_tokens = 1000  # three characters a token
            pool.end(ride, "ok")
        assert pool.tokens_of(3000) == pytest.approx(1000, rel=0.05)
        assert pool.tokens_of(10**9) < 10**6  # no longer than the largest endpoint takes

    asyncio.run(run())


def _record(call_id: str, arrival_s: float) -> CallRecord:
    return CallRecord(call_id, "m", arrival_s, "ok", dispatched_s=arrival_s, finished_s=arrival_s + 1, output_tokens=9,
                      prompt="user: hi", embedding=b"\x00\x01")  # fmt: skip


def test_records_become_a_log(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="logs need pyarrow")
    from swarmx.logs.importing import import_log
    from swarmx.logs.options import ImportOptions

    journal = Journal(tmp_path, Counters(), rotate_records=3)
    for i in range(4):
        journal.add(_record(str(i), 1e9 + i))
    (whole,) = tmp_path.glob("*.jsonl")
    assert [p.name.endswith(".jsonl.open") for p in tmp_path.iterdir() if p != whole] == [True]
    journal.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    plain = tmp_path / "plain.jsonl"
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    plain.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "embedding"}) + "\n" for row in rows))
    imported = import_log(plain, "columns", ImportOptions())
    assert [(r.call_id, r.arrival_s, r.output_tokens) for r in imported.records] == [
        ("0", 0, 9),
        ("1", 1, 9),
        ("2", 2, 9),
    ]


def test_a_disk_that_fails_fails_no_call(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    counters = Counters()
    journal = Journal(blocked / "below", counters)
    journal.add(_record("1", 0.0))
    journal.flush()
    journal.close()
    assert counters.total("dropped_records") == 1


def test_records_hold_prompts_only_as_asked() -> None:
    ride = Ride(Call("1", "m", 0.0, prompt="secret words"), None, Lanes("push").owner)
    assert ride.record("ok", 1.0, "drop").prompt_hash is None
    hashed = ride.record("ok", 1.0, "hash")
    assert hashed.prompt is None and len(hashed.prompt_hash or "") == 64
    assert ride.record("ok", 1.0, "keep").prompt == "secret words"


def test_nothing_is_sent_outside_a_subset_and_none_left_is_503() -> None:
    async def run() -> None:
        pool = _pool(TWO, "push")
        for _ in range(4):
            assert (await pool.pick(_call(pool, "1"), frozenset(["b:1"]), 0.0)).address == "b:1"
        with pytest.raises(Refused) as refused:
            await pool.pick(_call(pool, "2"), frozenset(["c:1"]), 0.0)
        assert refused.value.status == 503

    asyncio.run(run())


@pytest.mark.parametrize("small", ["a:1", "b:1"])
def test_a_call_too_long_for_its_subset_goes_nowhere_else(small: str) -> None:
    """Our count is a guess: the endpoint itself may refuse it, or it is 503."""

    async def run() -> None:
        states = [ReplicaState(n, "m", context_tokens=100 if n == small else 10_000) for n in ("a:1", "b:1")]
        pool = _pool(states, "push")
        try:
            ride = await pool.pick(_call(pool, "1", prompt_tokens=5000), frozenset([small]), 0.0)
        except Refused as refused:
            assert refused.status == 503
        else:
            assert ride.address == small
            pool.end(ride, "ok")
        assert not pool.lanes.cluster.flights and not pool.rides

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nproxy: {buffered_hold_s: 0.19}", "hold for at most 0.16 s"),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nschedular: {}", "unknown key schedular; known keys"),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nscheduler: {preset: clairvoyant}", "choose one of"),
        ("model: m", "either replicas or discover"),
        (
            "model: m\nreplicas: [{url: 'http://a:1'}]\nproxy: {duplexx: true}",
            "proxy.duplexx; known keys of proxy are .*duplex",
        ),
        (
            "model: m\nreplicas: [{url: 'http://a:1'}]\nscheduler: late",
            "scheduler: must hold keys and values, got 'late'",
        ),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nlisten: here", "listen: must be HOST:PORT"),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nmode: canary:2", "mode: must be on, shadow or canary:SHARE"),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nmode: {canary: 0.1}", "as in canary:0.05"),
        ("model: m\nreplicas: [{url: 'http://a:1'}]\nlease: {name: x, renew_s: 10}", "at most half"),
        ("- 1", "mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_bad_file_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as refused:
        read_settings(path)
    assert "\n" not in str(refused.value)


def test_a_bare_on_is_the_word(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"
    path.write_text("model: m\nreplicas: [{url: 'http://a:1'}]\nmode: on")
    assert read_settings(path).share == 1.0

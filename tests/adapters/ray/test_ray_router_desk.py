"""What a handle knows of its calls, without Ray: entered once, counted on Serve's word, gone when nobody waits."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from swarmx import client, kernel
from swarmx.adapters.ray_serve import identity
from swarmx.adapters.ray_serve.desk import Desk
from swarmx.adapters.ray_serve.settings import RouterSettings, settings_of
from swarmx.adapters.ray_serve.states import Ended, rows_since, state_of
from swarmx.errors import BadInput
from swarmx.types import ReplicaState

STATES = [ReplicaState(name, "m", slots=4, speed=speed) for name, speed in (("a", 1.0), ("b", 1.0), ("c", 0.25))]


def metadata(internal: str = "i1", **more: Any) -> Any:
    fields = {"internal_request_id": internal, "request_id": "r1", "session_id": "", "call_method": "__call__"}
    return SimpleNamespace(**{**fields, "is_streaming": False, **more})


@dataclass
class Request:
    args: list[Any] = field(default_factory=lambda: ["hello"])
    kwargs: dict[Any, Any] = field(default_factory=dict)
    metadata: Any = field(default_factory=metadata)
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Counts(Counter[str]):
    def add(self, name: str, value: str = "") -> None:
        self[name] += 1


def desk(preset: str = "least_outstanding_per_speed", over: list[str] | None = None) -> Desk:
    seen = [] if over is None else over
    made = Desk("m", preset, {}, lambda: 1000.0, Counts(), seen.append)  # type: ignore[arg-type]
    made.replicas_changed((state, {}) for state in STATES)
    return made


def load(made: Desk) -> dict[str, int]:
    return {state.id: len(made.lanes.cluster.on(state.id)) for state in made.lanes.cluster.states}


@pytest.mark.asyncio
async def test_calls_that_come_together_see_each_other() -> None:
    made = desk()
    firsts = [made.bind(made.enter(Request(metadata=metadata(f"i{i}")), {}))[0] for i in range(4)]
    assert Counter(firsts) == {"a": 2, "b": 2}


@pytest.mark.asyncio
async def test_every_replica_is_ranked_once() -> None:
    made = desk()
    assert sorted(made.bind(made.enter(Request(), {}))) == ["a", "b", "c"]


@pytest.mark.asyncio
async def test_asking_again_moves_a_call_and_does_not_count_it_twice() -> None:
    made, request = desk(), Request()
    first = made.bind(made.enter(request, {}))
    again = made.bind(made.enter(request, {}))
    assert again[0] != first[0]
    assert sum(load(made).values()) == 1
    made.routed(request, again[0])
    made.completed(again[0], "i1")
    assert sum(load(made).values()) == 0
    assert dict(made.counters) == {"routed": 1, "completed": 1}  # type: ignore[call-overload]


@pytest.mark.asyncio
async def test_a_call_counts_where_it_was_accepted() -> None:
    made, request = desk(), Request()
    made.bind(made.enter(request, {}))
    made.routed(request, "c")
    assert load(made) == {"a": 0, "b": 0, "c": 1}


@pytest.mark.asyncio
async def test_a_cancelled_request_leaves_the_book() -> None:
    over: list[str] = []
    made, request = desk(over=over), Request()
    made.bind(made.enter(request, {}))
    request.future.cancel()
    await asyncio.sleep(0)
    assert sum(load(made).values()) == 0
    assert len(over) == 1


@pytest.mark.asyncio
async def test_calls_of_one_ingress_request_are_told_apart() -> None:
    made = desk()
    requests = [Request([f"part {i}"]) for i in range(3)]  # one internal id
    for request in requests:
        made.routed(request, made.bind(made.enter(request, {}))[0])
    assert sum(load(made).values()) == 3
    for ride in list(made.rides.values()):
        made.completed(ride.replica, "i1")
    assert sum(load(made).values()) == 0
    assert {made.enter(request, {}).call.workflow_id for request in requests} == {"r1"}


@pytest.mark.asyncio
async def test_a_try_that_was_not_accepted_ends_nothing_until_nobody_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("swarmx.adapters.ray_serve.desk.AGAIN_S", 0.02)
    made, asked, gone = desk(), Request(), Request(metadata=metadata("i2"))
    for request in (asked, gone):
        name = made.bind(made.enter(request, {}))[0]
        request.future.set_result(name)
        made.completed(name, request.metadata.internal_request_id)
    asked.future = asyncio.get_running_loop().create_future()
    made.bind(made.enter(asked, {}))
    await asyncio.sleep(0.05)
    assert [ride.pending for ride in made.rides.values()] == [asked]
    assert sum(load(made).values()) == 1


@pytest.mark.asyncio
async def test_an_end_that_is_heard_of_before_its_acceptance_is_an_end() -> None:
    made, request = desk(), Request()
    name = made.bind(made.enter(request, {}))[0]
    made.completed(name, "i1")
    made.routed(request, name)
    assert not made.rides


@pytest.mark.asyncio
async def test_calls_of_a_lost_replica_are_bound_elsewhere() -> None:
    made, request = desk(), Request()
    first = made.bind(made.enter(request, {}))[0]
    made.replicas_changed((state, {}) for state in STATES if state.id != first)
    assert made.bind(made.enter(request, {}))[0] != first
    assert sum(load(made).values()) == 1


@pytest.mark.asyncio
async def test_a_call_stays_within_the_replicas_allowed_for_it() -> None:
    made = desk("push")
    for i in range(3):
        assert made.bind(made.enter(Request(metadata=metadata(f"i{i}")), {}), ["c"]) == ["c"]


@pytest.mark.asyncio
async def test_speeds_and_lengths_are_learned_from_statistics_once() -> None:
    made = desk("push")

    def stats(number: int, token_s: float) -> dict[str, Any]:
        tokens = [10 + 7 * (i % 9) for i in range(number)]
        rows = [Ended("k", "plan", "ok", t, t * token_s, 1.0, 50.0, 10.0).row() for t in tokens]
        return {"number": number, "ended": rows, "running": 0, "at_s": 999.0}

    for number in (0, 60, 120, 120):
        made.replicas_changed(
            (state_of(s.id, "m", 4, {**stats(number, 0.01 / s.speed), "device": s.id}), stats(number, 0.01 / s.speed))
            for s in STATES
        )
    fit = made.lanes.owner.fit
    taus = {s.id: fit.constants_at(s.id).tau(1, 50) for s in STATES}  # type: ignore[union-attr]
    assert taus["c"] / taus["a"] == pytest.approx(4.0, rel=0.1)
    assert made.lanes.owner.intake.observed.expect("plan").source == "per_type"


@pytest.mark.asyncio
async def test_an_old_report_does_not_count_calls_that_have_ended_since() -> None:
    made = desk()
    requests = [Request(metadata=metadata(f"i{i}")) for i in range(3)]
    for request in requests:
        made.bind(made.enter(request, {}), ["a"])
        made.routed(request, "a")
    made.clock = lambda: 1001.0
    made.completed("a", "i0")
    told = [state_of(s.id, "m", 4, {"running": 4 if s.id == "a" else 0, "at_s": 1000.5}) for s in STATES]
    made.replicas_changed((state, {}) for state in told)
    table = made.lanes.cluster.replicas
    assert (table[kernel.MINE, 0], table[kernel.OTHER, 0]) == (2, 1)  # one of the four is somebody else's


def test_rows_are_new_by_their_number() -> None:
    rows = [Ended(str(i), "", "ok", 1, 1.0, 1.0, 1.0, 0.0).row() for i in range(3)]
    assert [e.key for e in rows_since({"number": 10, "ended": rows}, 8)] == ["1", "2"]
    assert [e.key for e in rows_since({"number": 10, "ended": rows}, 0)] == ["0", "1", "2"]
    assert rows_since({}, 0) == []


def test_serve_limits_the_slots_that_a_replica_claims() -> None:
    assert state_of("a", "m", 8, {"slots": 64}).slots == 8
    assert state_of("a", "m", 8, {}).slots == 8
    assert state_of("a", "m", 8, {"slots": 2}).slots == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "prompt"),
    [
        (["hi"], {}, "hi"),
        ([], {"prompt": "hi", "max_tokens": 7}, "hi"),
        ([], {"name": "not a prompt"}, ""),
        ([{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 7}], {}, "hi"),
        ([[{"role": "user", "content": "hi"}]], {}, "hi"),
        ([SimpleNamespace(messages=[{"role": "user", "content": "hi"}], max_tokens=7)], {}, "hi"),
        ([7, b"bytes"], {"temperature": 1.0}, ""),
    ],
)
def test_the_prompt_is_found_where_people_put_it(args: list[Any], kwargs: dict[str, Any], prompt: str) -> None:
    asked = identity.read(args, kwargs)
    assert identity.text_of(asked.body.prompt) == prompt
    assert asked.body.max_tokens in (None, 7)


def test_whose_work_it_is_comes_from_headers_arguments_the_workflow_or_serve() -> None:
    def call(args: list[Any], kwargs: dict[str, Any], context: dict[str, str], **more: Any) -> Any:
        return identity.call_of(identity.read(args, kwargs), metadata(**more), "m", context, 1000.0)

    with client.workflow("ctx", tenant="t"):
        context = identity.context_headers()
    header = {"headers": {"X-Swarmx-Workflow-Id": "head", "x-swarmx-type": "plan"}}
    assert call(["p"], header, context).workflow_id == "head"
    assert call(["p"], {"swarmx_workflow_id": "arg"}, {}).workflow_id == "arg"
    assert (call(["p"], {}, context).workflow_id, call(["p"], {}, context).tenant) == ("ctx", "t")
    assert call(["p"], {}, {}, session_id="s").workflow_id == "s"
    assert call(["p"], {}, {}).workflow_id == "r1"
    assert call(["p"], header, {}).type == "plan"
    assert call(["p"], {}, {}, call_method="summarise").type == "summarise"
    assert identity.context_headers() == {}


def test_settings_are_checked_with_a_sentence() -> None:
    assert settings_of(preset="push").scheduler.preset == "push"
    assert settings_of(model_dir="/m").predictor.kind == "local"
    assert not settings_of(preset="push").asks_owner
    assert settings_of({"mode": "canary:0.25"}).share == 0.25
    with pytest.raises(BadInput, match=r"scheduler\.preset 'fastest' is unknown here; choose one of random"):
        settings_of(preset="fastest")
    with pytest.raises(BadInput, match=r"modes: .*known keys are mode, scheduler"):
        settings_of({"modes": "on"})
    with pytest.raises(BadInput, match="cannot be read"):
        settings_of("/nowhere.yaml")
    assert RouterSettings().asks_owner

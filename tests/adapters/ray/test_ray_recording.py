"""Records of calls: two ends that come apart in time, joined; written where training and explaining read them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_ray_router_desk import STATES, Counts, Request, metadata

from swarmx.adapters.gateway.receipts import find_receipt
from swarmx.adapters.gateway.records import JOURNAL, line_of
from swarmx.adapters.ray_serve.companions import companions
from swarmx.adapters.ray_serve.desk import Desk
from swarmx.adapters.ray_serve.recording import Recording, adopt, own_place
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.adapters.ray_serve.settings import settings_of
from swarmx.adapters.ray_serve.states import Ended
from swarmx.adapters.ray_serve.watching import PATIENCE_S
from swarmx.adapters.settings import LogSettings, PredictorSettings
from swarmx.errors import BadInput
from swarmx.logs.many import read_logs
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, CallRecord, Prediction


class Heard:
    """A desk whose ended calls are joined; time is set by hand."""

    def __init__(self, **more: Any) -> None:
        self.now = 1000.0
        self.records: list[CallRecord] = []
        self.desk = Desk(
            "m", "least_outstanding_per_speed", {}, lambda: self.now, Counts(),  # type: ignore[arg-type]
            on_record=lambda ride, record: self.records.append(record), **more,
        )  # fmt: skip
        self.desk.replicas_changed((state, {}) for state in STATES)

    @property
    def missed(self) -> int:
        return int(self.desk.counters["unrecorded"])  # type: ignore[index]

    def starts(self, replica: str, prompt: str = "hello", internal: str = "i1") -> tuple[Request, Ride]:
        request = Request([prompt], metadata=metadata(internal))
        ride = self.desk.enter(request, {})
        self.desk.bind(ride)
        self.desk.routed(request, replica)
        return request, ride

    def says(self, replica: str, *rows: Ended, number: int = 1) -> None:
        """The replica's statistics arrive."""
        stats = {"number": number, "ended": [row.row() for row in rows]}
        self.desk.replicas_changed((state, stats if state.id == replica else {}) for state in STATES)


def ended(ride: Ride, tokens: int = 7, status: str = "ok", **more: Any) -> Ended:
    return replace(Ended(ride.key, "__call__", status, tokens, 2.0, 1.0, 1.0, 1.0), **more)


@pytest.mark.asyncio
async def test_a_record_has_the_handles_times_and_the_replicas_lengths() -> None:
    heard = Heard()
    _, ride = heard.starts("b")
    heard.now = 1003.0
    heard.desk.completed("b", "i1")
    assert heard.records == []
    heard.now = 1003.5
    heard.says("b", ended(ride, prompt_tokens=11, first_s=0.5))
    (record,) = heard.records
    assert (record.status, record.output_tokens, record.prompt_tokens, record.replica) == ("ok", 7, 11, "b")
    assert (record.arrival_s, record.dispatched_s, record.first_token_s, record.finished_s) == (
        1000,
        1000,
        1001.5,
        1003,
    )
    assert (record.workflow_id, record.workflow_arrival_s, record.policy) == ("r1", None, "least_outstanding_per_speed")


@pytest.mark.asyncio
async def test_a_replica_may_speak_before_the_handle_hears_of_the_end() -> None:
    heard = Heard()
    _, ride = heard.starts("a")
    heard.says("a", ended(ride, 3, "error"))
    assert heard.records == []
    heard.desk.completed("a", "i1")
    assert [(r.status, r.output_tokens) for r in heard.records] == [("error", 3)]


@pytest.mark.asyncio
async def test_equal_prompts_of_one_request_are_two_calls_with_a_length_each() -> None:
    heard = Heard()
    _, first = heard.starts("a")
    heard.starts("a")
    heard.desk.completed("a", "i1")
    heard.desk.completed("a", "i1")
    heard.says("a", ended(first, 3), ended(first, 4), number=2)
    assert sorted(r.output_tokens for r in heard.records) == [3, 4]
    assert len({r.call_id for r in heard.records}) == 2


@pytest.mark.asyncio
async def test_calls_of_other_handles_make_no_record() -> None:
    heard = Heard()
    heard.says("a", Ended("theirs/0", "__call__", "ok", 5, 1.0, 1.0, 1.0, 1.0))
    assert heard.records == []


@pytest.mark.asyncio
async def test_a_call_given_up_before_it_ran_is_cancelled() -> None:
    heard = Heard()
    request = Request()
    heard.desk.bind(heard.desk.enter(request, {}))
    request.future.cancel()
    await asyncio.sleep(0)
    assert [(r.status, r.replica, r.dispatched_s) for r in heard.records] == [("cancelled", None, None)]


@pytest.mark.asyncio
async def test_calls_on_a_replica_that_is_gone_failed() -> None:
    heard = Heard()
    heard.starts("c")
    heard.desk.completed("c", "i1")
    heard.desk.replicas_changed((state, {}) for state in STATES[:2])
    assert [(r.status, r.replica) for r in heard.records] == [("error", "c")]


@pytest.mark.asyncio
async def test_of_a_call_that_its_replica_keeps_silent_about_there_is_no_record() -> None:
    heard = Heard()
    heard.starts("c")
    heard.desk.completed("c", "i1")
    heard.now += PATIENCE_S + 1
    heard.desk.replicas_changed((state, {}) for state in STATES)
    assert (heard.records, heard.missed) == ([], 1)


@pytest.mark.asyncio
async def test_a_watcher_that_fails_costs_no_call() -> None:
    heard = Heard()
    heard.desk.watchers = (object(),)  # type: ignore[assignment]
    heard.starts("a")
    heard.desk.completed("a", "i1")
    assert not heard.desk.rides
    assert heard.desk.counters["watching_failed"] == 2  # type: ignore[index]


@pytest.mark.asyncio
async def test_a_predictor_is_believed_once_its_word_was_better_than_the_lengths_seen() -> None:
    """A handle compares what was predicted with what replicas say; lengths of one type here are 10 or 1000."""
    heard = Heard()
    trust = heard.desk.lanes.at_once.intake.trust
    for i in range(40):
        tokens = (10, 1000)[i % 2]
        request = Request([f"prompt {i}"], metadata=metadata(f"i{i}"))
        ride = heard.desk.enter(request, {})
        ride.prediction = Prediction(QuantileGrid.point(float(tokens)))
        heard.desk.bind(ride)
        heard.desk.routed(request, "a")
        heard.desk.completed("a", f"i{i}")
        heard.says("a", ended(ride, tokens), number=i + 1)
    assert trust.compared == 40 and trust.holds


@pytest.mark.asyncio
async def test_receipts_say_why_a_call_went_where_it_went() -> None:
    receipts: list[Any] = []
    heard = Heard(on_receipt=receipts.append)
    _, ride = heard.starts("a")
    (receipt,) = receipts
    assert (receipt.call_id, receipt.replica, receipt.action) == (ride.call.id, "a", "start")


def test_what_is_written_is_read_by_training_and_explaining(tmp_path: Path) -> None:
    place = own_place(tmp_path, "app", "Engine")
    recording = Recording(LogSettings(directory=tmp_path, prompt="keep"), PredictorSettings(), place, lambda _: None)
    call = Call("c1", "Engine", 5.0, "hello")
    ride = Ride(None, call, "k", None, 5.0)  # type: ignore[arg-type]
    recording.write(ride, CallRecord("c1", "Engine", 5.0, "ok", dispatched_s=5.0, finished_s=6.0, output_tokens=4))
    heard = Heard(on_receipt=recording.receipts.add)
    asyncio.run(_one_call(heard))
    recording.close()
    assert [(r.call_id, r.prompt, r.output_tokens) for r in read_logs(tmp_path)] == [("c1", "hello", 4)]
    (name,) = {row["call_id"] for row in find_receipt(tmp_path, "said-so/1") + find_receipt(tmp_path, "said-so")}
    assert name == "said-so"


async def _one_call(heard: Heard) -> None:
    request = Request(kwargs={"headers": {"x-swarmx-call-id": "said-so"}})
    heard.desk.bind(heard.desk.enter(request, {}))


def test_what_a_killed_process_left_becomes_a_file_once(tmp_path: Path) -> None:
    record = CallRecord("c1", "m", 5.0, "ok", dispatched_s=5.0, finished_s=6.0, output_tokens=4)
    dead = tmp_path / f"app-Engine.{socket.gethostname()}.{2**22 + 1}.abc"  # above any process id
    alive = tmp_path / f"app-Engine.{socket.gethostname()}.{os.getpid()}.abc"
    for place in (dead, alive):
        place.mkdir()
        (place / JOURNAL).write_text(line_of(record))
    assert adopt(tmp_path) == 1
    assert adopt(tmp_path) == 0
    assert [r.call_id for r in read_logs(tmp_path)] == ["c1"]
    assert (alive / JOURNAL).exists()


def test_a_directory_that_cannot_be_written_costs_the_records_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    counters = Counts()
    settings = settings_of({"log": {"directory": str(tmp_path / "file" / "logs")}})
    made = companions(settings, "app", "Engine", time.time, counters)  # type: ignore[arg-type]
    assert made.recording is None and made.on_receipt is None
    assert counters == {"left_out": 1}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"log": {"journal": True}}, "log.journal"),
        ({"log": {"prompt": "embed"}}, "predictor.path"),
        ({"demand": {"log": "x", "learned": True}}, "demand.learned"),
        ({"demand": {}}, "demand.log"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_sentence(config: dict[str, Any], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        settings_of(config)

"""The gateway's parts by themselves: laws of framing, of identity, of records."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.adapters.gateway.asked import encode, read
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.identity import identity_of
from swarmx.adapters.gateway.records import JOURNAL, RecordLog, line_of, read_journal
from swarmx.adapters.gateway.replica import Observed, Replica
from swarmx.adapters.gateway.scan import StreamScan, read_answer
from swarmx.adapters.gateway.scrape import read_metrics
from swarmx.adapters.gateway.settings import UpstreamSettings
from swarmx.adapters.gateway.sse import EventSplitter, EventTooLong, data_of
from swarmx.adapters.settings import ReplicaSettings
from swarmx.logs.table import read_log
from swarmx.types import CallRecord

NOW = 1.8e9
lines = st.binary(max_size=30).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b""))
events = st.lists(st.lists(lines, min_size=1, max_size=3), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


# ---- framing ----


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=8))
def test_splitting_loses_and_adds_no_byte_however_it_is_cut(data: bytes, places: list[int]) -> None:
    splitter = EventSplitter()
    out = b"".join(event for piece in cut(data, places) for event in splitter.feed(piece))
    assert out + splitter.rest() == data


@given(events, st.lists(st.integers(0, 1000), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_they_are_cut(wanted: list[list[bytes]], places: list[int], newline: bytes) -> None:
    data = b"".join(b"".join(b"data: " + line + newline for line in event) + newline for event in wanted)
    splitter = EventSplitter()
    got = [event for piece in cut(data, places) for event in splitter.feed(piece)]
    assert [data_of(event) for event in got] == [b"\n".join(event) for event in wanted]
    assert splitter.rest() == b""


def test_an_event_without_end_is_refused() -> None:
    splitter = EventSplitter(limit_bytes=100)
    with pytest.raises(EventTooLong):
        for _ in range(20):
            splitter.feed(b"x" * 10)


@given(st.lists(st.integers(0, 3000), max_size=10))
def test_a_stream_is_passed_on_as_it_is_but_for_the_usage_that_was_not_asked_for(places: list[int]) -> None:
    def event(body: object) -> bytes:
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    texts = [event({"id": "a", "choices": [{"delta": {"content": f"usage {i}"}}], "usage": None}) for i in range(5)]
    usage = event({"id": "a", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    done = b": a comment\n\ndata: [DONE]\n\n"
    for hide in (True, False):
        scan = StreamScan(hide, keep_text=False)
        shown = b"".join(scan.take(piece) for piece in cut(b"".join([*texts, usage, done]), places)) + scan.rest()
        assert shown == b"".join([*texts, b"" if hide else usage, done])
        assert (scan.usage.prompt, scan.usage.output, scan.done) == (7, 5, True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=8), x),
        max_leaves=10,
    )
)
def test_no_answer_of_a_server_is_too_odd_to_read(body: object) -> None:
    usage = read_answer(json.dumps({"usage": body}).encode())
    assert usage.output is None or usage.output >= 0
    scan = StreamScan(True, keep_text=True)
    piece = (
        b"data: "
        + json.dumps({"choices": body, "usage": body, "type": "response.completed", "response": body}).encode()
    )
    assert scan.take(piece + b"\n\n") + scan.rest() is not None


# ---- requests ----

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_unknown_fields_stay_exactly_as_they_are(extra: dict[str, object]) -> None:
    body = {**extra, "model": "m", "messages": [{"role": "user", "content": "hi"}]}
    for name in ("stream", "max_tokens", "max_completion_tokens", "max_output_tokens"):
        body.pop(name, None)
    asked = read("/v1/chat/completions", json.dumps(body).encode(), "any")
    assert json.loads(encode(asked, {})) == body


@given(st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]), json_values)
def test_any_json_is_read_or_refused(path: str, value: object) -> None:
    field = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}.get(path, "input")
    for body in (value, {"model": "m", field: value}, {"model": value}):
        try:
            assert read(path, json.dumps(body).encode(), "data").prompt_chars >= 0
        except Refused as refusal:
            assert refusal.status == 400


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        read("/v1/chat/completions", raw, "data")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_no_json_for_the_server_is_refused(number: bytes) -> None:
    with pytest.raises(Refused, match="not valid JSON"):
        read("/v1/completions", b'{"model": "m", "prompt": "a", "temperature": ' + number + b"}", "data")


@pytest.mark.parametrize(("limit", "wanted"), [("16", 16), ("16.0", 16), ("0", 0)])
def test_a_limit_is_a_whole_number_however_it_is_written(limit: str, wanted: int) -> None:
    raw = b'{"model": "m", "prompt": "a", "max_tokens": ' + limit.encode() + b"}"
    assert read("/v1/completions", raw, "data").max_tokens == wanted


@pytest.mark.parametrize("limit", ["-1", "1.5", "true", '"8"', "1e999", "1e300"])
def test_any_other_limit_is_refused(limit: str) -> None:
    with pytest.raises(Refused, match="whole number"):
        read("/v1/completions", b'{"model": "m", "prompt": "a", "max_tokens": ' + limit.encode() + b"}", "data")


# ---- identity ----


@given(
    st.dictionaries(
        st.sampled_from([
            "x-swarmx-workflow-id", "x-swarmx-workflow-arrival", "x-swarmx-priority", "x-swarmx-deadline-s",
            "x-swarmx-tenant", "traceparent", "session_id", "x-claude-code-session-id",
        ]),
        st.text(max_size=20) | st.sampled_from(["1e999", "nan", "-1", "high", "0" * 300]),
    ),
    json_values,
)  # fmt: skip
def test_no_header_is_too_odd_to_read(headers: dict[str, str], metadata: object) -> None:
    identity = identity_of(headers, {"metadata": metadata, "prompt_cache_key": metadata}, NOW, None)
    assert identity.priority in ("high", "normal", "low") and identity.call_id and identity.tenant
    assert identity.deadline_s is None or identity.deadline_s > 0
    assert identity.workflow_arrival_s is None or 0 < identity.workflow_arrival_s <= NOW + 60


TRACE = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}


@pytest.mark.parametrize(
    ("headers", "body", "workflow"),
    [
        ({}, {}, ""),
        (TRACE, {}, "a" * 32),
        ({**TRACE, "session_id": "codex-1"}, {}, "codex-1"),
        ({**TRACE, "x-claude-code-session-id": "cc"}, {"prompt_cache_key": "pk"}, "cc"),
        ({}, {"prompt_cache_key": "pk"}, "pk"),
        ({"session_id": "s"}, {"metadata": {"swarmx_workflow_id": "w"}}, "w"),
        ({"session_id": "s", "x-swarmx-workflow-id": "h"}, {"metadata": {"swarmx_workflow_id": "w"}}, "h"),
    ],
)
def test_the_workflow_is_taken_from_the_most_explicit_source(
    headers: dict[str, str], body: dict[str, object], workflow: str
) -> None:
    assert identity_of(headers, body, NOW, None).workflow_id == workflow


def test_a_deadline_counts_from_now_or_from_the_epoch() -> None:
    assert identity_of({"x-swarmx-deadline-s": "5"}, {}, NOW, None).deadline_s == NOW + 5
    assert identity_of({"x-swarmx-deadline-s": str(NOW + 7)}, {}, NOW, None).deadline_s == NOW + 7
    assert identity_of(TRACE, {}, NOW, None).parent_id == "b" * 16


def test_the_client_helper_says_what_the_gateway_reads() -> None:
    from swarmx.client import headers, workflow

    with workflow("run-1", tenant="blue", priority="low", deadline_s=100) as work:
        with work.after("call-0"):
            inner = headers(type="write", call_id="call-1")
        outer = headers()
    said = identity_of(inner, {}, work.arrival_s + 1, None)
    assert (said.workflow_id, said.tenant, said.priority, said.type) == ("run-1", "blue", "low", "write")
    assert (said.call_id, said.parent_id) == ("call-1", "call-0")
    assert said.workflow_arrival_s == pytest.approx(work.arrival_s, abs=1e-3)
    assert said.deadline_s == pytest.approx(work.arrival_s + 100, abs=1e-3)
    assert "x-swarmx-parent-id" not in outer and list(headers()) == ["x-swarmx-call-id"]


# ---- replicas ----

VLLM = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",x="a\\"b"} 1.0
"""
SGLANG = 'sglang:num_running_reqs{m="x"} 3\nsglang:num_queue_reqs{m="x"} 2\nsglang:token_usage{m="x"} 0.25\n'
LLAMA = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n"


@pytest.mark.parametrize("text", [VLLM, SGLANG, LLAMA])
def test_the_metrics_of_each_engine_are_understood(text: str) -> None:
    seen = read_metrics(text, Observed(), ours=4, now=1.0)
    assert seen is not None
    assert (seen.running, seen.waiting, seen.others, seen.slots) == (3, 2, 1, 3)
    if "cache_config" in text:
        assert seen.kv_capacity_tokens == 16_000 and seen.kv_share == 0.25


@given(st.text(max_size=300))
def test_no_metrics_are_too_odd_to_read(text: str) -> None:
    read_metrics("vllm:" + text, Observed(), 0, 1.0)


def test_a_breaker_opens_for_longer_each_time_and_closes_after_a_success() -> None:
    upstream = UpstreamSettings(eject_after=2, eject_s=1.0, eject_most_s=3.0)
    replica = Replica(ReplicaSettings(url="http://a:1"), "m")
    assert not replica.call_failed(upstream, 0.0) and replica.call_failed(upstream, 0.0)
    assert not replica.usable(0.9) and replica.usable(1.0)
    assert replica.call_failed(upstream, 1.0)  # half open: one failure is enough
    assert not replica.usable(2.9) and replica.usable(3.0)
    assert replica.call_failed(upstream, 3.0) and not replica.usable(5.9) and replica.usable(6.0)  # at most 3 s
    replica.call_answered()
    assert replica.failed_calls == replica.ejections == 0


def test_what_a_broken_call_had_counted_is_taken_back() -> None:
    upstream = UpstreamSettings(eject_after=2, eject_s=1.0)
    replica = Replica(ReplicaSettings(url="http://a:1"), "m")
    first, second = (replica.call_failed(upstream, 0.0) for _ in range(2))
    assert (first, second) == (False, True)
    replica.forgive(second)
    assert replica.usable(0.0) and (replica.failed_calls, replica.ejections) == (1, 0)
    assert replica.call_failed(upstream, 0.0)  # somebody else's: the first still counts
    replica.forgive(True)
    replica.forgive(first)
    assert not replica.call_failed(upstream, 0.0)


def test_a_recovered_replica_starts_slowly() -> None:
    upstream = UpstreamSettings(slow_start_s=10.0)
    replica = Replica(ReplicaSettings(url="http://a:1", slots=8), "m")
    for _ in range(3):
        replica.probe_failed(3)
    assert not replica.healthy and replica.probe_answered(100.0)
    assert [replica.slots(upstream, 100.0 + t) for t in (0, 2.5, 5, 10)] == [1, 2, 4, 8]


# ---- records ----


def record(i: int) -> CallRecord:
    return CallRecord(f"c{i}", "m", float(i), "ok", waits_for=("a",), finished_s=i + 1.0, embedding=b"\x00\x01")


def test_a_record_comes_back_from_its_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_text(line_of(record(1)) + line_of(record(1)) + line_of(record(2)) + '{"call_id": "half')
    assert read_journal(path) == [record(1), record(2)]


def test_records_survive_a_crash_and_a_disk_that_refuses(tmp_path: Path) -> None:
    lost: list[int] = []
    first = RecordLog(tmp_path, 1000, 1000, lost.append)
    first.add(record(1))
    first._flush()  # and then the process dies
    again = RecordLog(tmp_path, 1000, 1000, lost.append)
    again.start()
    assert [r.call_id for p in tmp_path.glob("*.parquet") for r in read_log(p)] == ["c1"]
    (tmp_path / JOURNAL).mkdir()  # nothing can be appended there
    again.add(record(2))
    again._flush()
    assert again._fresh == [record(2)]
    (tmp_path / JOURNAL).rmdir()
    again.close()
    assert {r.call_id for p in tmp_path.glob("*.parquet") for r in read_log(p)} == {"c1", "c2"} and not lost

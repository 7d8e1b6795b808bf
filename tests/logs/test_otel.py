from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from swarmx.errors import BadInput
from swarmx.logs.options import ImportOptions
from swarmx.logs.otel import read
from swarmx.types import CallRecord

USAGE = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 5}


def span(name: str, start: float, end: float, parent: str | None = None, **more: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": more.pop("op", "chat"), "gen_ai.request.model": "m", **USAGE, **more}
    told = {k: v for k, v in attributes.items() if v is not None}
    return {"span_id": name, "parent_span_id": parent, "start_time": start, "end_time": end, "attributes": told}


def imported(folder: Path, *spans: dict[str, Any], estimate: bool = False) -> dict[str, CallRecord]:
    path = folder / "spans.json"
    path.write_text(json.dumps({"trace_id": "t", "spans": spans}))
    return {r.call_id.removeprefix("t/"): r for r in read(path, ImportOptions(estimate_tokens=estimate))}


def waits(calls: dict[str, CallRecord]) -> dict[str, list[str]]:
    return {name: sorted(w.removeprefix("t/") for w in call.waits_for) for name, call in calls.items()}


def test_siblings_that_overlap_are_parallel_and_the_next_one_merges_them(tmp_path: Path) -> None:
    calls = imported(tmp_path, span("a", 0, 1), span("b", 2, 4), span("c", 2, 5), span("d", 6, 7))
    assert waits(calls) == {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    assert calls["d"].parent_id == "t/c"


def test_tools_are_gaps_and_agents_no_calls(tmp_path: Path) -> None:
    spans = [
        span("agent", 0, 10, op="invoke_agent"),
        span("a", 1, 2, "agent"),
        span("tool", 2, 5, "agent", op="execute_tool"),
        span("b", 5.5, 7, "agent"),
    ]
    calls = imported(tmp_path, *spans)
    assert waits(calls) == {"a": [], "b": ["a"]}
    assert {c.workflow_arrival_s for c in calls.values()} == {0.0}


def test_parallel_agents_stay_parallel(tmp_path: Path) -> None:
    spans = [
        span("plan", 0, 1),
        span("left", 1, 9, op="invoke_agent"),
        span("right", 1, 9, op="invoke_agent"),
        span("l1", 1, 2, "left"),
        span("l2", 5, 9, "left"),
        span("r1", 1, 4, "right"),
        span("r2", 6, 8, "right"),
        span("merge", 9, 10),
    ]
    found = waits(imported(tmp_path, *spans))
    assert found["l2"] == ["l1"] and found["r2"] == ["r1"]  # from time alone l2 would wait for r1
    assert found["l1"] == found["r1"] == ["plan"]
    assert found["merge"] == ["l2", "r2"]


def test_a_call_below_a_finished_call_waits_for_it(tmp_path: Path) -> None:
    spans = [span("a", 0, 2), span("tool", 2, 6, "a", op="execute_tool"), span("b", 3, 5, "tool")]
    assert waits(imported(tmp_path, *spans)) == {"a": [], "b": ["a"]}


def test_of_one_call_seen_by_two_layers_the_inner_one_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        calls = imported(tmp_path, span("outer", 0, 5), span("inner", 1, 4, "outer"), span("next", 6, 7))
    assert waits(calls) == {"inner": [], "next": ["inner"]}
    assert "left out 1 LLM spans" in caplog.text


def test_older_names_and_openinference_are_understood(tmp_path: Path) -> None:
    old = {"gen_ai.usage.prompt_tokens": 3, "gen_ai.usage.completion_tokens": "4", "gen_ai.response.model": "r"}
    other = {"openinference.span.kind": "LLM", "llm.model_name": "o", "llm.token_count.completion": 6}
    base = span("x", 0, 1)
    calls = imported(
        tmp_path,
        {**base, "span_id": "old", "attributes": old},
        {**base, "span_id": "other", "attributes": other},
        {**base, "span_id": "chain", "attributes": {**other, "openinference.span.kind": "CHAIN"}},
    )
    assert {name: (c.model, c.output_tokens) for name, c in calls.items()} == {"old": ("r", 4), "other": ("o", 6)}


def test_otlp_json_is_read_with_its_typed_values_and_resource(tmp_path: Path) -> None:
    message = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "Who?"}}]}}
    attributes = [
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "5"}},
        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [message]}}},
        {"key": "error.type", "value": {"stringValue": "TimeoutError"}},
    ]
    raw = {
        "traceId": "t",
        "spanId": "a",
        "parentSpanId": "",
        "startTimeUnixNano": "1500000000",
        "endTimeUnixNano": "3000000000",
        "status": {"code": 2},
        "attributes": attributes,
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    path = tmp_path / "otlp.json"
    path.write_text(json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [raw]}]}]}))
    (call,) = read(path, ImportOptions())
    assert (call.call_id, call.arrival_s, call.finished_s, call.output_tokens) == ("t/a", 1.5, 3.0, 5)
    assert (call.type, call.prompt, call.status) == ("shop", "Who?", "timeout")


def test_tokens_are_estimated_from_text_only_when_asked(tmp_path: Path) -> None:
    text = {"gen_ai.usage.output_tokens": None, "gen_ai.output.text": "12345", "gen_ai.prompt": "[not json"}
    with pytest.raises(BadInput, match=r"span 'a': no gen_ai\.usage\.output_tokens; import with --estimate"):
        imported(tmp_path, span("a", 0, 1, **text))
    call = imported(tmp_path, span("a", 0, 1, **text), estimate=True)["a"]
    assert (call.output_tokens, call.prompt) == (2, "[not json")


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([], "no spans in it"),
        ([span("a", 0, 1, op="embeddings")], "none of its 1 spans is an LLM call"),
        ([span("a", 0, 1, "b"), span("b", 0, 1, "a")], "each other's parents"),
        ([span("a", 0, 1), span("a", 2, 3)], "a span id occurs twice"),
        ([{**span("a", 0, 1), "end_time": None}], "span 'a', field end_time"),
        ([{**span("a", 0, 1), "span_id": None}], "without trace and span id"),
        ([span("a", 0, 1, **{"gen_ai.usage.output_tokens": "many"})], "span 'a': gen_ai.usage.output_tokens: 'many'"),
        ([{**span("a", 0, 1), "attributes": {"gen_ai.usage.output_tokens": 5}}], "span 'a': no model"),
    ],
)
def test_spans_that_say_too_little_are_refused_in_one_sentence(
    spans: list[dict[str, Any]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as problem:
        imported(tmp_path, *spans)
    assert words in str(problem.value)


def test_a_deep_tree_of_spans_is_no_trouble(tmp_path: Path) -> None:
    chain = [span(f"s{i}", i, 5000 - i, f"s{i - 1}" if i else None, op="invoke_agent") for i in range(2000)]
    calls = imported(tmp_path, *chain, span("call", 2400, 2401, "s1999"))
    assert waits(calls) == {"call": []}

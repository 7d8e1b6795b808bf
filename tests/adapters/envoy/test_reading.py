"""What is read of requests, answers and metrics pages, which come from outside and may be anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.adapters.envoy.answer import MAX_KEPT, Answer
from swarmx.adapters.envoy.body import read_body
from swarmx.adapters.envoy.headers import identified, wanted
from swarmx.adapters.envoy.messages import pb
from swarmx.adapters.envoy.metrics_text import Load, read_load
from swarmx.adapters.prompts import prefix_blocks, text_of
from swarmx.predict.text import text_of as tool_text_of
from swarmx.predict.tools import tool_counts, without_tools
from swarmx.types import Call

unhurried = settings(deadline=None, max_examples=60)  # a busy machine is no defect
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 9, "stream": True}


def test_chat_completions_and_responses_bodies_are_understood() -> None:
    chat = read_body(json.dumps(CHAT).encode())
    assert (chat.model, chat.chars, chat.max_tokens, chat.stream, text_of(chat.prompt)) == ("m", 5, 9, True, "hello")
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url"}]}]}
    assert read_body(json.dumps(parts).encode()).chars == 3
    assert read_body(b'{"prompt": "abc", "max_tokens": 4}').max_tokens == 4
    assert read_body(b'{"prompt": ["ab", "c"]}').prompt == "ab\nc"
    told = read_body(
        b'{"input": [{"role": "user", "content": "hi"}], "instructions": "be kind", "max_output_tokens": 2}'
    )
    assert (text_of(told.prompt), told.max_tokens) == ("system: be kind\nuser: hi", 2)


def test_equal_beginnings_of_prompts_have_equal_blocks() -> None:
    system = {"role": "system", "content": "s" * 600}
    one, two = (({**system}, {"role": "user", "content": text * 300}) for text in "ab")
    first, second = prefix_blocks(one), prefix_blocks(two)
    assert len(first) == len(second) == 3 and first[:2] == second[:2] and first[2] != second[2]
    assert prefix_blocks("short") == ()
    assert len(prefix_blocks("x" * 10_000_000)) == 512


@unhurried
@given(st.binary(max_size=200) | st.from_type(type(None)).map(lambda _: b"[" * 20_000))
def test_any_bytes_are_a_body(raw: bytes) -> None:
    read_body(raw)


KEYS = st.sampled_from(["messages", "prompt", "input", "content", "max_tokens", "model", "role", "text"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(KEYS, x)
)


@unhurried
@given(JSON)
def test_any_json_is_a_body_with_a_text(value: object) -> None:
    body = read_body(json.dumps(value).encode())
    assert isinstance(text_of(body.prompt), str) and body.chars >= 0
    assert body.max_tokens is None or body.max_tokens > 0


def test_tools_are_read_or_left_out_however_deep_they_are_nested() -> None:
    for depth in range(1, 1100):
        body = read_body(b'{"prompt": "x", "tools": %s%s}' % (b"[" * depth, b"]" * depth))
        assert body.readable or body.chars > depth


@pytest.mark.parametrize("limit", [0, -1, 10**20, 10**400, "5"])
def test_a_limit_that_no_server_has_is_none(limit: object) -> None:
    assert read_body(json.dumps({"prompt": "x", "max_tokens": limit}).encode()).max_tokens is None


def _call(**headers: str) -> Call:
    objectives = {"batch": -1, "chat": 2}
    return identified(Call("", "m", 1000.0), {k.replace("_", "-"): v for k, v in headers.items()}, objectives)


def test_headers_of_the_extension_are_understood_and_ours_win() -> None:
    assert _call(x_gateway_inference_objective="batch").priority == "low"
    assert _call(x_gateway_inference_objective="chat").priority == "high"
    assert _call(x_gateway_inference_objective="else").priority == "normal"
    assert _call(x_gateway_inference_objective="batch", x_swarmx_priority="high").priority == "high"
    assert _call(x_gateway_inference_fairness_id="a").tenant == "a"
    assert _call(x_gateway_inference_fairness_id="a", x_swarmx_tenant="b").tenant == "b"
    assert _call(x_slo_ttft_ms="500", x_slo_tpot_ms="10").deadline_s == pytest.approx(1000 + 0.5 + 2.56)
    assert _call(x_slo_ttft_ms="500").deadline_s is None
    assert _call(x_slo_ttft_ms="500", x_slo_tpot_ms="1e308").deadline_s is None  # a log takes no time without end
    assert _call(x_slo_ttft_ms="500", x_slo_tpot_ms="10", x_swarmx_deadline_s="7").deadline_s == 1007.0


def test_the_call_is_named_by_its_caller_or_else_by_the_proxy() -> None:
    assert _call(x_swarmx_call_id="a", x_request_id="b").id == "a"
    assert _call(x_request_id="b").id == "b"
    assert _call().id


@unhurried
@given(st.dictionaries(st.sampled_from([
    "x-swarmx-workflow-arrival", "x-swarmx-deadline-s", "x-swarmx-priority", "x-slo-ttft-ms", "x-slo-tpot-ms",
    "x-swarmx-tenant", "traceparent"]), st.text()))  # fmt: skip
def test_no_header_value_breaks_a_call(headers: dict[str, str]) -> None:
    call = identified(Call("", "m", 1000.0), headers, {})
    assert call.workflow_start_s <= 1000.0
    assert call.deadline_s is None or call.deadline_s > 0


def test_only_the_headers_that_matter_are_taken_from_the_map() -> None:
    rows = [("authorization", b"secret"), ("x-swarmx-tenant", b"t" * 500), ("x-request-id", b"r"), ("cookie", b"c")]
    found = wanted(pb.HeaderMap(headers=[pb.HeaderValue(key=k, raw_value=v) for k, v in rows]))
    assert found == {"x-swarmx-tenant": "t" * 200, "x-request-id": "r"}


def _sse(*events: object) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


CHUNK = {"choices": [{"delta": {"content": "w"}}]}
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}},
}


@unhurried
@given(st.integers(1, 40), st.booleans())
def test_a_stream_is_counted_whatever_the_pieces_it_comes_in(size: int, with_usage: bool) -> None:
    raw = _sse(CHUNK, CHUNK, CHUNK, *([USAGE] if with_usage else []), b"[DONE]")
    answer = Answer()
    answer.begin(200, "text/event-stream; charset=utf-8")
    for begin in range(0, len(raw), size):
        answer.feed(raw[begin : begin + size])
    answer.end()
    assert answer.tokens == (7 if with_usage else 3) and answer.ok
    assert (answer.prompt_tokens, answer.cached_tokens) == ((5, 2) if with_usage else (None, 0))


def test_a_responses_stream_counts_deltas_and_reads_the_usage_of_its_end() -> None:
    delta = {"type": "response.output_text.delta", "delta": "w"}
    end = {"type": "response.completed", "response": {"usage": {"input_tokens": 3, "output_tokens": 11}}}
    answer = Answer()
    answer.begin(200, "text/event-stream")
    assert answer.feed(_sse({"type": "response.created"}, delta, delta)) == 2
    answer.feed(_sse(end))
    answer.end()
    assert (answer.tokens, answer.prompt_tokens) == (11, 3)


def test_an_error_in_the_middle_of_a_stream_is_a_failure() -> None:
    answer = Answer()
    answer.begin(200, "text/event-stream")
    answer.feed(_sse(CHUNK, {"error": {"message": "out of memory"}}))
    assert not answer.ok


def test_the_usage_of_a_long_answer_is_found_at_its_end_in_bounded_memory() -> None:
    body = json.dumps({"choices": [{"text": "x" * (4 * MAX_KEPT)}], "usage": {"completion_tokens": 99}}).encode()
    answer = Answer()
    answer.begin(200, "application/json")
    for begin in range(0, len(body), 60_000):
        answer.feed(body[begin : begin + 60_000])
        assert len(answer._rest) <= MAX_KEPT
    answer.end()
    assert answer.tokens == 99


@unhurried
@given(st.lists(st.binary(max_size=100)), st.booleans())
def test_any_answer_can_be_read(pieces: list[bytes], stream: bool) -> None:
    answer = Answer()
    answer.begin(200, "text/event-stream" if stream else "application/json")
    for piece in pieces:
        answer.feed(piece)
    answer.end()
    assert answer.tokens >= 0


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_nested_without_end_tells_no_usage(stream: bool) -> None:
    for begin in (b'data: {"usage": ', b'x"usage": {"a": '):
        answer = Answer()
        answer.begin(200, "text/event-stream" if stream else "application/json")
        answer.feed(begin + b"[" * 100_000 + b"\n\n")
        answer.end()
        assert answer.output_tokens is None


VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="0.3"} 12
"""


def test_pages_of_the_known_engines_are_read() -> None:
    assert read_load(VLLM) == Load(5, 4, 0.25, 16_000)
    assert read_load(VLLM.replace("kv_cache_usage", "gpu_cache_usage")) == Load(5, 4, 0.25, 16_000)
    sglang = (
        "sglang:num_running_reqs 3\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\nsglang:max_total_num_tokens 900\n"
    )
    assert read_load(sglang) == Load(3, 1, 0.5, 900)
    assert read_load("llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n") == Load(2, 1)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300", "many"])
def test_a_page_that_says_the_impossible_says_nothing(value: str) -> None:
    assert read_load(f"vllm:num_requests_running {value}\n") is None


@unhurried
@given(st.text(max_size=300))
def test_any_text_is_a_page(text: str) -> None:
    read_load(text)
    assert read_load("") is None


def test_tools_of_a_request_stand_before_its_prompt() -> None:
    """Where chat templates put them, and where the predictor counts them."""
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"properties": {"city": {}}}}}]
    said = [{"role": "user", "content": "what is the weather in Rome"}]
    plain, armed = (read_body(json.dumps({"messages": said, **more}).encode()) for more in ({}, {"tools": tools}))
    assert armed.prompt[1:] == plain.prompt
    counts = [tool_counts(*without_tools(tool_text_of(body.prompt)))[0] for body in (plain, armed)]
    assert counts[1] > counts[0] == 0
    assert armed.chars > plain.chars


def test_a_stream_says_that_it_is_over() -> None:
    answer = Answer()
    answer.begin(200, "text/event-stream")
    answer.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
    assert not answer.done
    answer.feed(b"data: [DONE]\n\n")
    assert answer.done and answer.events == 1

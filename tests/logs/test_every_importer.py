"""What holds for every importer: a small sample by hand is read, a broken one is one sentence, real ones are read."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.logs import IMPORTERS
from swarmx.logs.importing import import_log
from swarmx.logs.options import ImportOptions, parse_constants, parse_map
from swarmx.logs.table import read_about, read_log, write_log
from swarmx.logs.workflows import workflows_of

REAL = Path(__file__).parents[3] / "shared" / "data" / "log_formats"
QUICK = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def lines(*objects: object) -> bytes:
    return "\n".join(json.dumps(o) for o in objects).encode()


def span(name: str, start: int, end: int, parent: str | None = None, **attributes: object) -> dict[str, object]:
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.output_tokens": 5, **attributes}
    times = {"start_time": f"2026-01-01T00:00:{start:02}Z", "end_time": f"2026-01-01T00:00:{end:02}Z"}
    return {"span_id": name, "parent_span_id": parent, "name": name, **times, "attributes": told}


EVENT = {
    "event": "model",
    "timestamp": "2026-01-01T00:00:00+00:00",
    "completed": "2026-01-01T00:00:02+00:00",
    "model": "m",
    "input": [{"role": "user", "content": "attachment://1"}],
    "output": {"usage": {"input_tokens": 9, "output_tokens": 5}},
}
LATER = {**EVENT, "timestamp": "2026-01-01T00:00:03+00:00", "completed": "2026-01-01T00:00:04+00:00"}
INSPECT = {
    "eval": {"task": "quiz"},
    "samples": [{"id": 1, "uuid": "u", "events": [EVENT, {"event": "tool"}, LATER], "attachments": {"1": "Who?"}}],
}
AIPERF = {
    "metadata": {"x_request_id": "r", "request_start_ns": 10**18, "request_end_ns": 10**18 + 10**9},
    "metrics": {
        "output_sequence_length": {"value": 5, "unit": "tokens"},
        "time_to_first_token": {"value": 250.0, "unit": "ms"},
    },
    "error": None,
}
LITELLM = {
    "id": "1",
    "trace_id": "w",
    "status": "success",
    "model": "m",
    "startTime": "2026-01-01 00:00:00.5",
    "endTime": "2026-01-01 00:00:02.5",
    "completionStartTime": "2026-01-01 00:00:01.5",
    "prompt_tokens": 3,
    "completion_tokens": 5,
    "messages": [{"role": "user", "content": "Who?"}],
}
BENCH = {"input_lens": [3], "output_lens": [5], "ttfts": [0.5], "itls": [[0.1, 0.1, 0.1, 0.1]], "model_id": "m"}
LLMPERF = [
    {
        "error_code": None,
        "ttft_s": 0.5,
        "end_to_end_latency_s": 1.0,
        "number_output_tokens": 5,
        "number_input_tokens": 3,
    }
]

# name -> (file name, content); every sample's last call has 5 output tokens
SAMPLES: dict[str, tuple[str, bytes]] = {
    "columns": ("a.csv", b"arrival_s,model,output_tokens,finished_s\n1,m,3,2\n1.5,m,5,4\n"),
    "otel": ("a.json", lines({"trace_id": "t", "spans": [span("a", 0, 2), span("b", 3, 4)]})),
    "azure_llm_trace": ("a.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,5\n"),
    "mooncake_trace": ("a.jsonl", lines({"timestamp": 1500, "input_length": 9, "output_length": 5, "hash_ids": [0]})),
    "vidur_trace": ("a.csv", b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,5\n"),
    "splitwise_sim": ("a.csv", b"request_id,arrival_timestamp,prompt_size,token_size\n7,1,4096,5\n"),
    "litellm": ("a.json", lines(LITELLM)),
    "inspect_ai": ("a.json", lines(INSPECT)),
    "aiperf": ("a.jsonl", lines(AIPERF)),
    "bench_serving": ("a.jsonl", lines(BENCH)),
    "llmperf": ("a.json", lines(LLMPERF)),
}
# name -> [(file below log_formats, calls in it)]
REAL_SAMPLES: list[tuple[str, str, int]] = [
    ("otel", "otel_genai_spans/code_review_workflow.json", 15),
    ("otel", "otel_genai_spans/fan_in_dependencies.json", 4),
    ("otel", "otel_genai_spans/parallel_requests.json", 5),
    ("otel", "otel_genai_spans/simple_chain.json", 3),
    ("azure_llm_trace", "azure_llm_trace/conv_first_300_lines.csv", 299),
    ("mooncake_trace", "mooncake_trace/conversation_first_200_lines.jsonl", 200),
    ("vidur_trace", "vidur_trace/splitwise_conv_first_200_lines.csv", 199),
    ("splitwise_sim", "splitwise_sim/test_trace.csv", 3),
    ("litellm", "litellm/standard_logging_payload.json", 1),
    ("inspect_ai", "inspect_ai/browser_agent.json", 5),
    ("inspect_ai", "inspect_ai/popularity.json", 3),
    ("inspect_ai", "inspect_ai/log_formats.eval", 1),
    ("aiperf", "aiperf/qwen_concurrency1/profile_export.jsonl", 10),
    ("llmperf", "llmperf/anyscale_70b_individual.json", 150),
]
UNUSABLE = [
    ("otel", "otlp_json/otelcol_file_export.json", "none of its 2 spans is an LLM call"),
    ("bench_serving", "sglang_bench_serving/llama_3_3_70b_online_h200.jsonl", "only totals of a run"),
    ("llmperf", "llmperf/anyscale_70b_summary.json", "no row has a value at"),
    ("inspect_ai", "tau_bench/gpt-4o-airline_first_2.json", "no model events"),
]


def sample(name: str, folder: Path) -> Path:
    file, content = SAMPLES[name]
    (folder / file).write_bytes(content)
    return folder / file


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_small_sample_becomes_a_log_that_can_be_replayed(name: str, tmp_path: Path) -> None:
    imported = import_log(sample(name, tmp_path), name, ImportOptions())
    write_log(imported.records, tmp_path / "log.parquet", imported.about)
    log = read_log(tmp_path / "log.parquet")
    assert log[-1].output_tokens == 5
    assert min(r.arrival_s for r in log) == 0.0
    assert sum(len(w.calls) for w in workflows_of(log)) == len(log)
    assert read_about(tmp_path / "log.parquet")["format"] == name


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_missing_file_a_directory_and_an_empty_file_are_refused(name: str, tmp_path: Path) -> None:
    path = sample(name, tmp_path)
    path.write_bytes(b"")
    for bad in (path, tmp_path, tmp_path / f"none{path.suffix}"):
        with pytest.raises(BadInput, match=str(bad)):
            import_log(bad, name, ImportOptions())


@pytest.mark.parametrize("name", IMPORTERS)
@QUICK
@given(share=st.floats(0, 1))
def test_a_truncated_file_never_shows_a_traceback(name: str, share: float, tmp_path: Path) -> None:
    path = sample(name, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    accepts_or_refuses(path, name)


@pytest.mark.parametrize("name", IMPORTERS)
@QUICK
@given(
    place=st.floats(0, 0.999), byte=st.integers(0, 255), what=st.sampled_from((b"", b'"x"', b"-1e999", b"null", b"["))
)
def test_a_damaged_file_never_shows_a_traceback(
    name: str, place: float, byte: int, what: bytes, tmp_path: Path
) -> None:
    path = sample(name, tmp_path)
    data = path.read_bytes()
    at = int(len(data) * place)
    path.write_bytes(data[:at] + (what or bytes([byte])) + data[at + 1 :])
    accepts_or_refuses(path, name)


@pytest.mark.parametrize("name", [name for name, (file, _) in SAMPLES.items() if not file.endswith(".csv")])
@QUICK
@given(data=st.data())
def test_any_json_value_in_any_place_never_shows_a_traceback(name: str, data: st.DataObject, tmp_path: Path) -> None:
    path = sample(name, tmp_path)
    value = json.loads(path.read_bytes())
    odd = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=3,
    )
    path.write_text(json.dumps(replaced(value, data.draw(st.integers(0, 40)), data.draw(odd))[0]))
    accepts_or_refuses(path, name)


def replaced(value: object, place: int, odd: object) -> tuple[object, int]:
    """The value with the node at `place` of a depth-first walk exchanged, and the places left."""
    if place == 0:
        return odd, -1
    place -= 1
    if isinstance(value, dict):
        out: dict[str, object] = {}
        for key, inner in value.items():
            out[key], place = replaced(inner, place, odd) if place >= 0 else (inner, place)
        return out, place
    if isinstance(value, list):
        items = []
        for inner in value:
            item, place = replaced(inner, place, odd) if place >= 0 else (inner, place)
            items.append(item)
        return items, place
    return value, place


def accepts_or_refuses(path: Path, name: str) -> None:
    try:
        write_log(import_log(path, name, ImportOptions()).records, path.parent / "log.parquet")
    except BadInput as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize(("name", "file", "calls"), REAL_SAMPLES)
def test_real_files_are_read(name: str, file: str, calls: int, tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip(f"the collection of real log files is not at {REAL}")
    imported = import_log(REAL / file, name, ImportOptions(estimate_tokens=name == "otel"))
    write_log(imported.records, tmp_path / "log.parquet", imported.about)
    assert len(read_log(tmp_path / "log.parquet")) == calls
    assert sum(len(w.calls) for w in workflows_of(imported.records)) == calls


@pytest.mark.parametrize(("name", "file", "words"), UNUSABLE)
def test_real_files_without_calls_are_refused_in_one_sentence(name: str, file: str, words: str) -> None:
    if not REAL.is_dir():
        pytest.skip(f"the collection of real log files is not at {REAL}")
    with pytest.raises(BadInput, match=words):
        import_log(REAL / file, name, ImportOptions())


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'xml'; choose one of columns, otel"):
        import_log(tmp_path / "a.xml", "xml", ImportOptions())


def test_a_map_for_a_format_with_its_own_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="own columns"):
        import_log(sample("otel", tmp_path), "otel", ImportOptions(parse_map(["model=x"])))


@pytest.mark.parametrize(
    ("storage", "kept"), [("keep", ("Who?", True)), ("hash", (None, True)), ("drop", (None, False))]
)
def test_prompts_are_stored_as_asked(storage: str, kept: tuple[str | None, bool], tmp_path: Path) -> None:
    (call,) = import_log(sample("litellm", tmp_path), "litellm", ImportOptions(), storage).records  # type: ignore[arg-type]
    assert (call.prompt, call.prompt_hash is not None) == kept


def test_litellm_times_workflow_and_prompt(tmp_path: Path) -> None:
    (call,) = import_log(sample("litellm", tmp_path), "litellm", ImportOptions()).records
    assert (call.workflow_id, call.first_token_s, call.finished_s, call.prompt) == ("w", 1.0, 2.0, "Who?")


def test_aiperf_units_are_converted(tmp_path: Path) -> None:
    (call,) = import_log(sample("aiperf", tmp_path), "aiperf", ImportOptions(constants={"device": "h100"})).records
    assert (call.first_token_s, call.finished_s, call.device) == (0.25, 1.0, "h100")


def test_bench_serving_latency_is_first_token_and_all_gaps(tmp_path: Path) -> None:
    (call,) = import_log(sample("bench_serving", tmp_path), "bench_serving", ImportOptions()).records
    assert (call.first_token_s, call.finished_s) == (0.5, pytest.approx(0.9))


def test_inspect_events_are_calls_and_tools_are_gaps(tmp_path: Path) -> None:
    imported = import_log(sample("inspect_ai", tmp_path), "inspect_ai", ImportOptions())
    (workflow,) = workflows_of(imported.records)
    assert [(c.delay_s, c.record.type, c.record.prompt) for c in workflow.calls] == [
        (0.0, "quiz", "Who?"),
        (1.0, "quiz", "Who?"),
    ]


def test_inspect_archives_are_read_and_damaged_ones_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"task": "quiz"}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(INSPECT["samples"][0]))  # type: ignore[index]
    path = tmp_path / "a.eval"
    path.write_bytes(buffer.getvalue())
    assert [r.type for r in import_log(path, "inspect_ai", ImportOptions()).records] == ["quiz", "quiz"]
    data = bytearray(buffer.getvalue())
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        accepts_or_refuses(path, "inspect_ai")


def test_constants_fill_what_a_trace_does_not_say(tmp_path: Path) -> None:
    options = ImportOptions(constants=parse_constants(["model=llama", "tenant=acme"]))
    (call,) = import_log(sample("vidur_trace", tmp_path), "vidur_trace", options).records
    assert (call.model, call.tenant) == ("llama", "acme")


@pytest.mark.parametrize("name", IMPORTERS)
def test_constants_reach_the_calls_of_every_format(name: str, tmp_path: Path) -> None:
    options = ImportOptions(constants=parse_constants(["tenant=acme", "priority=low", "max_tokens=99"]))
    for call in import_log(sample(name, tmp_path), name, options).records:
        assert (call.tenant, call.priority, call.max_tokens) == ("acme", "low", 99)


def test_a_constant_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no whole number"):
        import_log(sample("otel", tmp_path), "otel", ImportOptions(constants={"max_tokens": "many"}))

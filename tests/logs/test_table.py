from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.logs.columns import read as read_columns
from swarmx.logs.fields import SCHEMA_VERSION
from swarmx.logs.options import ImportOptions
from swarmx.logs.table import read_about, read_log, read_table, schema, write_log
from swarmx.quantiles import LEVELS
from swarmx.types import PRIORITIES, CallRecord

text = st.text(max_size=12)
maybe_text = st.none() | text
count = st.integers(0, 2**40)
maybe_count = st.none() | count
gap_s = st.floats(0, 1e6)


@st.composite
def grids(draw: st.DrawFn) -> tuple[float, ...]:
    steps = draw(st.lists(st.floats(0, 1e4, width=32), min_size=LEVELS.size, max_size=LEVELS.size))
    return tuple(float(v) for v in np.cumsum(steps).astype(np.float32))


@st.composite
def records(draw: st.DrawFn, call_id: str = "c") -> CallRecord:
    """Any record that a log may hold."""
    start = draw(gap_s)
    arrival = start + draw(gap_s)
    dispatched = arrival + draw(gap_s)
    first = dispatched + draw(gap_s)
    return CallRecord(
        call_id=call_id,
        model=draw(st.text(min_size=1, max_size=8)),
        arrival_s=arrival,
        status=draw(st.sampled_from(("ok", "error", "cancelled", "preempted", "timeout", "rejected"))),
        workflow_id=draw(text),
        parent_id=draw(maybe_text),
        waits_for=draw(st.lists(text, max_size=3).map(tuple)),
        workflow_arrival_s=draw(st.none() | st.just(start)),
        tenant=draw(text),
        priority=draw(st.sampled_from(PRIORITIES)),
        type=draw(maybe_text),
        prompt=draw(maybe_text),
        prompt_hash=draw(maybe_text),
        prompt_group=draw(maybe_text),
        prompt_tokens=draw(count),
        max_tokens=draw(st.none() | st.integers(1, 2**40)),
        deadline_s=draw(st.none() | gap_s),
        replica=draw(maybe_text),
        device=draw(maybe_text),
        dispatched_s=draw(st.none() | st.just(dispatched)),
        first_token_s=draw(st.none() | st.just(first)),
        finished_s=draw(st.none() | st.just(first + draw(gap_s))),
        output_tokens=draw(count),
        cached_tokens=draw(count),
        running_at_dispatch=draw(maybe_count),
        waiting_at_dispatch=draw(maybe_count),
        kv_tokens_at_dispatch=draw(maybe_count),
        predicted_tokens=draw(st.none() | grids()),
        prediction_source=draw(st.none() | st.sampled_from(("neural", "per_type", "pool_mean", "oracle"))),
        policy=draw(maybe_text),
        embedding=draw(st.none() | st.binary(max_size=8).map(lambda b: b[: len(b) // 2 * 2])),
        encoder_sha=draw(maybe_text),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[CallRecord]:
    return [draw(records(f"c{i}")) for i in range(draw(st.integers(1, 4)))]


QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CALL = CallRecord("a", "m", 0.0, "ok", finished_s=1.0, output_tokens=3)


@QUICK
@given(log=logs())
def test_what_is_written_is_read(log: list[CallRecord], tmp_path: Path) -> None:
    write_log(log, tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet") == log


@QUICK
@given(log=logs())
def test_json_lines_with_the_log_s_own_names_need_no_map(log: list[CallRecord], tmp_path: Path) -> None:
    rows = [{k: v for k, v in asdict(r).items() if v is not None} for r in log]
    for row in rows:
        if "embedding" in row:
            row["embedding"] = base64.b64encode(row["embedding"]).decode()
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert read_columns(tmp_path / "log.jsonl", ImportOptions()) == log


def test_every_field_of_a_record_is_a_column_in_order() -> None:
    assert schema().names == [f.name for f in fields(CallRecord)]


def test_the_about_text_comes_back(tmp_path: Path) -> None:
    write_log([CALL], tmp_path / "log.parquet", {"source": "a test"})
    assert read_about(tmp_path / "log.parquet") == {"source": "a test"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrival_s": float("nan")}, ["row 2", "arrival_s", "nan", "not finite"]),
        ({"finished_s": float("inf")}, ["row 2", "finished_s", "inf"]),
        ({"arrival_s": -1.0}, ["row 2", "arrival_s", "-1.0", "negative"]),
        ({"arrival_s": 5.0}, ["row 2", "finished_s", "'1.0'", "before arrival_s"]),
        ({"dispatched_s": 2.0}, ["row 2", "finished_s", "before dispatched_s"]),
        ({"workflow_arrival_s": 0.5}, ["row 2", "workflow_arrival_s", "after the call"]),
        ({"call_id": "a"}, ["row 2", "call_id", "'a'", "second time"]),
        ({"call_id": ""}, ["row 2", "call_id", "empty"]),
        ({"status": "fine"}, ["row 2", "status", "'fine'", "choose one of ok, error"]),
        ({"priority": "urgent"}, ["row 2", "priority", "'urgent'", "high, normal, low"]),
        ({"output_tokens": -3}, ["row 2", "output_tokens", "'-3'"]),
        ({"output_tokens": 2**70}, ["row 2", "output_tokens", str(2**70)]),
        ({"output_tokens": "many"}, ["row 2", "output_tokens", "'many'"]),
        ({"max_tokens": 0}, ["row 2", "max_tokens", "below 1"]),
        ({"model": "\ud800"}, ["row 2", "model"]),
        ({"arrival_s": None}, ["row 2", "arrival_s", "missing"]),
        ({"predicted_tokens": (1.0,)}, ["row 2", "predicted_tokens", str(LEVELS.size)]),
        ({"predicted_tokens": tuple(range(LEVELS.size, 0, -1))}, ["row 2", "predicted_tokens", "decrease"]),
    ],
)
def test_a_bad_value_is_refused_by_row_and_field_and_nothing_is_written(
    change: dict[str, object], words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "log.parquet"
    with pytest.raises(BadInput) as problem:
        write_log([CALL, replace(CALL, **({"call_id": "b"} | change))], path)
    for word in [str(path), *words]:
        assert word in str(problem.value)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no calls"):
        write_log([], tmp_path / "log.parquet")


def test_a_failed_write_leaves_the_old_log(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_log([CALL], path)
    with pytest.raises(BadInput):
        write_log([replace(CALL, arrival_s=-1.0)], path)
    assert read_log(path) == [CALL]


def _written(tmp_path: Path) -> Path:
    path = tmp_path / "log.parquet"
    write_log([CALL, replace(CALL, call_id="b", prompt="x" * 500)], path, {"source": "a test"})
    return path


def test_a_missing_log_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such log"):
        read_log(tmp_path / "none.parquet")
    with pytest.raises(BadInput, match="is a directory"):
        read_log(tmp_path)


@QUICK
@given(share=st.floats(0, 0.999))
def test_a_truncated_log_is_refused(share: float, tmp_path: Path) -> None:
    path = _written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(BadInput, match="not a whole Parquet file"):
        read_log(path)


@settings(QUICK, max_examples=60)
@given(place=st.floats(0, 0.9999), bits=st.integers(1, 255))
def test_a_damaged_byte_is_noticed_or_harmless(place: float, bits: int, tmp_path: Path) -> None:
    path = _written(tmp_path)
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= bits
    path.write_bytes(data)
    try:
        log = read_log(path)
    except BadInput:
        return
    assert [r.call_id for r in log] == ["a", "b"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"swarmx.log.schema": str(SCHEMA_VERSION + 1)}), path)
    with pytest.raises(BadInput, match="upgrade swarmx-scheduler"):
        read_log(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(BadInput, match="no schema version"):
        read_log(path)


@pytest.mark.parametrize("name", ["call_id", "model", "arrival_s", "status"])
def test_a_missing_required_column_is_named(name: str, tmp_path: Path) -> None:
    path = _written(tmp_path)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([name]), path)
    with pytest.raises(BadInput, match=f"required column '{name}' is missing"):
        read_log(path)


def test_a_missing_optional_column_takes_its_default(tmp_path: Path) -> None:
    path = _written(tmp_path)
    pq.write_table(pq.read_table(path).drop_columns(["tenant", "waits_for", "device"]), path)
    assert read_log(path)[0] == CALL


def test_an_unknown_and_a_mistyped_column_are_named(tmp_path: Path) -> None:
    path = _written(tmp_path)
    table = pq.read_table(path)
    pq.write_table(table.append_column("colour", pa.array(["red", "blue"])), path)
    with pytest.raises(BadInput, match="unknown column 'colour'"):
        read_log(path)
    place = table.column_names.index("output_tokens")
    pq.write_table(table.set_column(place, "output_tokens", pa.array(["few", "many"])), path)
    with pytest.raises(BadInput, match="column 'output_tokens' is of type string"):
        read_log(path)


def test_narrower_types_of_other_writers_are_read(tmp_path: Path) -> None:
    path = _written(tmp_path)
    table = pq.read_table(path)
    place = table.column_names.index("output_tokens")
    pq.write_table(table.set_column(place, "output_tokens", pa.array([3, 3], pa.int16())), path)
    assert read_log(path)[0] == CALL


def test_the_columnar_reader_gives_numbers_as_arrays(tmp_path: Path) -> None:
    log = [replace(CALL, call_id=str(i), output_tokens=i) for i in range(1000)]
    write_log(log, tmp_path / "log.parquet")
    tokens = read_table(tmp_path / "log.parquet")["output_tokens"].to_numpy()
    np.testing.assert_array_equal(tokens, np.arange(1000))


def test_without_pyarrow_one_sentence_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: read_log(path), lambda: write_log([CALL], path)):
        with pytest.raises(BadInput, match=r"swarmx-scheduler\[train\]"):
            use()

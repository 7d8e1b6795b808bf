from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swarmx.errors import BadInput
from swarmx.logs.columns import look_up, read
from swarmx.logs.options import Column, ImportOptions, parse_constants, parse_map


def options(*maps: str, **constants: str) -> ImportOptions:
    return ImportOptions(parse_map(list(maps)), constants)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_csv_columns_are_mapped_with_units_and_durations(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "started,took,ttft,n,text\n2026-01-01T00:00:01Z,1500,0.25,7,Who?\n")
    maps = ("arrival_s=started:iso", "finished_s=+took:ms", "first_token_s=+ttft", "output_tokens=n", "prompt=text")
    (call,) = read(path, options(*maps, model="m"))
    assert call.arrival_s == 1767225601.0
    assert (call.finished_s, call.first_token_s) == (call.arrival_s + 1.5, call.arrival_s + 0.25)
    assert (call.call_id, call.model, call.output_tokens, call.prompt, call.status) == ("1", "m", 7, "Who?", "ok")


def test_an_arrival_can_be_a_duration_before_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "end,took,output_tokens,ttft\n10,4,7,1\n")
    maps = ("finished_s=end", "arrival_s=-took", "first_token_s=+ttft")
    (call,) = read(path, options(*maps, model="m"))
    assert (call.arrival_s, call.first_token_s, call.finished_s) == (6.0, 7.0, 10.0)


def test_nested_json_lines_are_reached_by_dotted_paths(tmp_path: Path) -> None:
    row = {"t": 5, "usage": {"completion_tokens": 3}, "choices": [{"reason": "stop"}], "m": "x", "gen_ai.system": "s"}
    maps = (
        "arrival_s=t:ns",
        "output_tokens=usage.completion_tokens",
        "type=choices.0.reason",
        "model=m",
        "tenant=gen_ai.system",
    )
    (call,) = read(write(tmp_path, "a.jsonl", json.dumps(row) + "\n"), options(*maps))
    assert (call.arrival_s, call.output_tokens, call.type, call.tenant) == (5e-9, 3, "stop", "s")


def test_keys_with_dots_are_found_at_every_depth() -> None:
    values = {"a": {"b.c": {"d": 1}}, "x.y": {"z": [10, 20]}, "a.b": 2}
    assert [look_up(values, p) for p in ("a.b.c.d", "x.y.z.1", "a.b", "a.q", "x.y.z.9")] == [1, 20, 2, None, None]


def test_the_same_rows_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    rows = [{"arrival_s": 0.5, "model": "m", "output_tokens": 3}, {"arrival_s": 1.0, "model": "m", "output_tokens": 4}]
    csv = "arrival_s,model,output_tokens\n0.5,m,3\n1.0,m,4\n"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(csv.encode()))
    paths = [
        write(tmp_path, "a.csv", csv),
        write(tmp_path, "a.tsv", csv.replace(",", "\t")),
        write(tmp_path, "a.jsonl", "\n".join(json.dumps(r) for r in rows)),
        write(tmp_path, "a.json", json.dumps(rows, indent=1)),
        tmp_path / "a.parquet",
        tmp_path / "a.csv.gz",
    ]
    first, *others = [read(path, ImportOptions()) for path in paths]
    assert [r.output_tokens for r in first] == [3, 4]
    assert all(other == first for other in others)


def test_output_tokens_are_estimated_from_text_where_only_that_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "arrival_s,answer\n0,123456789\n")
    assert read(path, options("output_text=answer", model="m"))[0].output_tokens == 3


def test_statuses_of_others_are_understood(tmp_path: Path) -> None:
    words = ["success", "200", "500", "429", "504", "Failed", "canceled", "TIMEOUT", ""]
    text = "arrival_s,output_tokens,model,code\n" + "".join(f"0,1,m,{w}\n" for w in words)
    found = [r.status for r in read(write(tmp_path, "a.csv", text), options("status=code"))]
    assert found == ["ok", "ok", "error", "rejected", "timeout", "error", "cancelled", "timeout", "ok"]


def test_messages_become_one_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    row = {"arrival_s": 0, "model": "m", "output_tokens": 1, "prompt": messages, "waits_for": ["x", "y"]}
    (call,) = read(write(tmp_path, "a.jsonl", json.dumps(row)), ImportOptions())
    assert (call.prompt, call.waits_for) == ("system: Be brief.\nuser: one\ntwo", ("x", "y"))


@pytest.mark.parametrize(
    ("text", "maps", "words"),
    [
        ("arrival_s,model,output_tokens\n0,m,x\n", [], ["line 2", "output_tokens", "'x' is no whole number"]),
        ("arrival_s,model,output_tokens\n0,m,1.5\n", [], ["line 2", "'1.5' is no whole number"]),
        ("arrival_s,model,output_tokens\nsoon,m,1\n", [], ["line 2", "arrival_s", "'soon' is no ISO-8601"]),
        ("arrival_s,model,output_tokens\nx,m,1\n", ["arrival_s=arrival_s:ms"], ["'x' is no number of ms"]),
        ("arrival_s,model,output_tokens\n,m,1\n", [], ["line 2", "arrival_s", "no value"]),
        ("arrival_s,model,output_tokens,status\n0,m,1,odd\n", [], ["line 2", "status", "'odd' is no known status"]),
        ("t,model,output_tokens\n0,m,1\n", [], ["no column for arrival_s", "--map arrival_s", "t, model"]),
        ("arrival_s,output_tokens\n0,1\n", [], ["no column for model", "--set model=NAME"]),
        ("arrival_s,model\n0,m\n", [], ["no column for output_tokens", "output_text"]),
        ("arrival_s,model,output_tokens\n0,m,1\n", ["type=kind"], ["no row has a value at 'kind'"]),
        ("arrival_s,model,output_tokens\n0,m\n", [], ["line 2 has 2 cells, the header 3"]),
        ("a,a\n0,1\n", [], ["line 1 must name every column once"]),
        ("arrival_s,model,output_tokens,d\n0,m,1,2\n", ["arrival_s=-d"], ["-COLUMN needs finished_s"]),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(text: str, maps: list[str], words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", text)
    with pytest.raises(BadInput) as problem:
        read(path, options(*maps))
    for word in [str(path), *words]:
        assert word in str(problem.value)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("tokens=x", "unknown field 'tokens'; choose one of call_id"),
        ("model", "no column given"),
        ("model=+x", "duration since arrival_s"),
        ("finished_s=-x", "duration since arrival_s"),
    ],
)
def test_a_bad_map_is_refused_in_one_sentence(item: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("+", r"\+")):
        parse_map([item])


def test_a_colon_that_is_no_unit_belongs_to_the_column() -> None:
    assert parse_map(["type=a:b", "arrival_s=a:b:ms"]) == {"type": Column("a:b"), "arrival_s": Column("a:b", "ms")}


def test_a_bad_constant_is_refused() -> None:
    with pytest.raises(BadInput, match="--set colour=red"):
        parse_constants(["colour=red"])


def test_a_name_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ending in '\.xls'"):
        read(tmp_path / "a.xls", ImportOptions())


def test_deep_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nested too deeply"):
        read(write(tmp_path, "a.json", "[" * 100_000), ImportOptions())


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"arrival_s\n\xff\n")
    with pytest.raises(BadInput, match="byte 10 is no UTF-8"):
        read(tmp_path / "a.csv", ImportOptions())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("predicted_tokens", [None], "holds 'None', which is no number"),
        ("predicted_tokens", "[" * 100_000, "nested too deeply"),
        ("waits_for", 3, "is no list"),
        ("waits_for", "[1", "Expecting"),
        ("embedding", "*", "is no base64"),
        ("arrival_s", True, "is no time"),
        ("arrival_s", 10**400, "is no number of s"),
        ("output_tokens", True, "is no whole number"),
        ("output_tokens", [1], "is no whole number"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(name: str, value: object, words: str, tmp_path: Path) -> None:
    row = {"arrival_s": 0, "model": "m", "output_tokens": 1, name: value}
    with pytest.raises(BadInput, match=f"line 1, field {name}") as problem:
        read(write(tmp_path, "a.jsonl", json.dumps(row)), ImportOptions())
    assert words in str(problem.value)


def test_lists_in_csv_are_json_or_separated_by_semicolons(tmp_path: Path) -> None:
    text = 'arrival_s,model,output_tokens,waits_for\n0,m,1,a;b\n0,m,1,"[""a"", ""b""]"\n'
    assert [r.waits_for for r in read(write(tmp_path, "a.csv", text), ImportOptions())] == [("a", "b")] * 2

"""Logs in several files."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmx.cli import app
from swarmx.errors import BadInput
from swarmx.logs.many import about_logs, checksum, log_files, read_logs
from swarmx.logs.table import write_log
from swarmx.types import CallRecord


def record(name: str) -> CallRecord:
    return CallRecord(call_id=name, model="m", arrival_s=0.0, status="ok")


def test_a_directory_is_read_file_by_file_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    for name in ("b", "a", "later/c"):
        write_log([record(f"{name}1"), record(f"{name}2")], tmp_path / f"{name}.parquet")
    (tmp_path / ".half-written.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not a log")
    assert [r.call_id for r in read_logs(tmp_path)] == ["a1", "a2", "b1", "b2", "later/c1", "later/c2"]
    assert read_logs(tmp_path / "a.parquet") == read_logs(tmp_path)[:2]


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no \.parquet file"):
        log_files(tmp_path)


def test_of_several_files_is_told_what_all_say_and_one_checksum(tmp_path: Path) -> None:
    for name, engine in (("a", "vllm"), ("b", "sglang")):
        write_log([record(name)], tmp_path / f"{name}.parquet", {"source": "gateway", "engine": engine})
    a, b = ((tmp_path / f"{name}.parquet").read_bytes() for name in "ab")
    assert about_logs(tmp_path) == {"source": "gateway", "files": "2"}
    assert about_logs(tmp_path / "a.parquet") == {"source": "gateway", "engine": "vllm"}
    assert checksum(tmp_path / "a.parquet") == hashlib.sha256(a).hexdigest()
    assert checksum(tmp_path) == hashlib.sha256(a + b).hexdigest()


def test_a_directory_is_described_and_checked_like_a_file(tmp_path: Path) -> None:
    for name in "ab":
        write_log([record(name)], tmp_path / f"{name}.parquet")
    described = CliRunner().invoke(app, ["log", "describe", str(tmp_path), "--json"])
    assert described.exit_code == 0 and json.loads(described.stdout)["calls"] == 2
    write_log([record("a")], tmp_path / "again.parquet")
    checked = CliRunner().invoke(app, ["log", "check", str(tmp_path), "--json"])
    graph = next(c for c in json.loads(checked.stdout)["checks"] if c["name"] == "call graph")
    assert checked.exit_code == 1 and graph["outcome"] == "failed" and "more than once" in graph["detail"]

"""Logs in several files."""

from pathlib import Path

import pytest

from swarmx.errors import BadInput
from swarmx.logs.many import log_files, read_logs
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

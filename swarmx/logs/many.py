"""Logs that lie in several Parquet files, as a recorder that closes one now and then writes them."""

from __future__ import annotations

from pathlib import Path

from swarmx.errors import BadInput
from swarmx.logs.table import read_log
from swarmx.types import CallRecord


def log_files(path: str | Path) -> list[Path]:
    """The Parquet files of a log in the order of their names: the file itself, or all below a directory.

    Raises BadInput when there is none.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith("."))
    if not found:
        raise BadInput(f"{path} holds no .parquet file; make one with `swarmx log import` or `swarmx log record`")
    return found


def read_logs(path: str | Path) -> list[CallRecord]:
    """Every record of a log, file by file. Raises BadInput as `read_log` does."""
    return [record for file in log_files(path) for record in read_log(file)]

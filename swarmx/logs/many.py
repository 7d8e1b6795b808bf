"""Logs that lie in several Parquet files, as a recorder that closes one now and then writes them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from swarmx.errors import BadInput
from swarmx.logs.table import read_about, read_log
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


def about_logs(path: str | Path) -> dict[str, str]:
    """What the writers of a log's files all said about it, and how many files there are where it is more than one."""
    said = [read_about(file) for file in log_files(path)]
    agreed = {key: value for key, value in said[0].items() if all(other.get(key) == value for other in said[1:])}
    return agreed if len(said) == 1 else {**agreed, "files": str(len(said))}


def checksum(path: str | Path) -> str:
    """SHA-256 of a log: of its file, or of its files one after the other, in the order of their names."""
    found = hashlib.sha256()
    for file in log_files(path):
        found.update(file.read_bytes())
    return found.hexdigest()

"""The journal of a recording: JSON lines, appended call by call, so that a killed recording keeps what it has.

A line is a CallRecord's fields, or `{"workflow_end": id, "failed": reason or null}`. Calls of a workflow without an end
were cut off by the kill: they are left out of the log, and the workflow runs again when the recording is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO

from swarmx.errors import BadInput
from swarmx.files import replacing
from swarmx.types import CallRecord

FIELDS = {field.name for field in fields(CallRecord)}


def to_row(record: CallRecord) -> dict[str, Any]:
    """The record as JSON takes it, without the fields that are unset."""
    return {name: value for name, value in asdict(record).items() if value is not None}


def from_row(row: dict[str, Any]) -> CallRecord:
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return CallRecord(**known)


def read_journal(path: Path) -> tuple[list[CallRecord], dict[str, str | None]]:
    """All complete calls, and how each ended workflow ended (None: well). A torn last line is ignored.

    Raises BadInput for a line that is neither a call nor an end.
    """
    records: list[CallRecord] = []
    ends: dict[str, str | None] = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is empty or torn
        try:
            row = json.loads(line)
            if "workflow_end" in row:
                ends[row["workflow_end"]] = row["failed"]
            else:
                records.append(from_row(row))
        except (ValueError, TypeError, KeyError) as problem:
            raise BadInput(f"{path}, line {number}: not a line of a recording's journal ({problem})") from None
    return records, ends


class Journal:
    """The open journal of one recording. done : workflows that it holds complete; last_s : its latest time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[str] = set()
        self.last_s = 0.0
        self._file: TextIO | None = None

    def __enter__(self) -> Journal:
        if self.path.exists():
            self._drop_unfinished()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _drop_unfinished(self) -> None:
        records, ends = read_journal(self.path)
        kept = [record for record in records if record.workflow_id in ends]
        with replacing(self.path) as temporary:
            rows = [to_row(record) for record in kept]
            rows += [{"workflow_end": name, "failed": reason} for name, reason in ends.items()]
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        self.done = set(ends)
        self.last_s = max((record.finished_s or record.arrival_s for record in records), default=0.0)

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is None:
            raise RuntimeError("the journal is not open")
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def call(self, record: CallRecord) -> None:
        self._write(to_row(record))

    def end(self, workflow_id: str, failed: str | None) -> None:
        self._write({"workflow_end": workflow_id, "failed": failed})


def complete(records: Iterable[CallRecord], ends: dict[str, str | None]) -> list[CallRecord]:
    """The calls of the workflows that ended, in order of arrival."""
    kept = (record for record in records if record.workflow_id in ends)
    return sorted(kept, key=lambda record: (record.arrival_s, record.call_id))

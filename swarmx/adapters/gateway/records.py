"""Finished calls on their way to disk: appended as JSON lines, closed into Parquet files that `swarmx train` reads.

The event loop only puts a record into a list; a thread writes. A file appears whole or not at all, and what a crash
leaves is a journal that the next start turns into a file; a half-written last line in it is dropped.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.logs.table import write_log
from swarmx.types import CallRecord

log = logging.getLogger(__name__)
FLUSH_S = 0.5
MAX_HELD = 100_000  # records kept in memory while the disk does not take them; older ones are dropped and counted
JOURNAL = "calls.jsonl"


class RecordLog:
    """Writes records to a directory; `add` never blocks and never raises.

    lost : called with the number of records that had to be dropped
    enrich : what the writing thread does to each record first
    """

    def __init__(
        self,
        directory: Path,
        rotate_records: int,
        rotate_s: float,
        lost: Callable[[int], None] = lambda _: None,
        enrich: Callable[[CallRecord], CallRecord] | None = None,
    ) -> None:
        self.directory = directory
        self.rotate_records = rotate_records
        self.rotate_s = rotate_s
        self.lost = lost
        self.enrich = enrich
        self._fresh: list[CallRecord] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._journaled = 0
        self._opened_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="swarmx-records", daemon=True)

    def start(self) -> None:
        """Recover what a crash left, and begin. Raises BadInput when the directory cannot be written."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            probe = self.directory / ".probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as problem:
            raise BadInput(f"log.directory {self.directory}: cannot be written ({problem.strerror})") from None
        self._rotate()
        self._thread.start()

    def add(self, record: CallRecord) -> None:
        self._fresh.append(record)  # append and the swap in _flush are atomic

    def close(self) -> None:
        """Write everything and close the last file."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._flush()
        self._rotate()

    # ---- the writing thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_S):
            self._flush()
            full = self._journaled >= self.rotate_records
            if full or (self._journaled and time.monotonic() - self._opened_s > self.rotate_s):
                self._rotate()

    def _flush(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, []
            if not fresh:
                return
            if self.enrich is not None:
                fresh = [self.enrich(record) for record in fresh]
            lines = "".join(line_of(record) for record in fresh)
            try:
                with (self.directory / JOURNAL).open("a", encoding="utf-8") as journal:
                    journal.write(lines)
                self._journaled += len(fresh)
            except OSError as problem:
                log.warning("records cannot be written: %s", problem)
                self._keep(fresh)

    def _keep(self, records: list[CallRecord]) -> None:
        """Hold on to them until the disk takes records again; the oldest go when there are too many."""
        held = records + self._fresh
        dropped = max(0, len(held) - MAX_HELD)
        self._fresh = held[dropped:]
        if dropped:
            self.lost(dropped)

    def _rotate(self) -> None:
        """Turn the journal into a Parquet file; on failure it stays and is tried again with the next rotation."""
        journal = self.directory / JOURNAL
        self._opened_s = time.monotonic()
        if not journal.exists():
            return
        records = read_journal(journal)
        try:
            if records:
                name = time.strftime("calls-%Y%m%dT%H%M%SZ", time.gmtime(records[0].finished_s or records[0].arrival_s))
                write_log(records, _free_name(self.directory, name), {"source": "swarmx gateway"})
            journal.unlink()
            self._journaled = 0
        except (OSError, BadInput) as problem:
            log.warning("the journal of records stays as it is: %s", problem)


def line_of(record: CallRecord) -> str:
    """One JSON line; bytes as base64, empty fields left out."""
    row = {k: v for k, v in asdict(record).items() if v is not None}
    if record.embedding is not None:
        row["embedding"] = base64.b64encode(record.embedding).decode()
    return json.dumps(row, separators=(",", ":")) + "\n"


def read_journal(path: Path) -> list[CallRecord]:
    """Records of a journal; lines that are not whole, and calls that are there twice, are left out."""
    known = {f.name for f in fields(CallRecord)}
    records: dict[str, CallRecord] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row: dict[str, Any] = json.loads(line)
                row = {k: v for k, v in row.items() if k in known}
                if "embedding" in row:
                    row["embedding"] = base64.b64decode(row["embedding"])
                for name in ("waits_for", "predicted_tokens"):
                    if name in row:
                        row[name] = tuple(row[name])
                record = CallRecord(**row)
            except (ValueError, TypeError):
                continue
            records.setdefault(record.call_id, record)
    return list(records.values())


def _free_name(directory: Path, name: str) -> Path:
    path, number = directory / f"{name}.parquet", 1
    while path.exists():
        path, number = directory / f"{name}-{number}.parquet", number + 1
    return path

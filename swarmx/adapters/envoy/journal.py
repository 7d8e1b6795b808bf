"""Finished calls as JSON lines, in files that `swarmx log import` reads; a failing disk never fails a request."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

from swarmx.adapters.envoy.counters import Counters
from swarmx.types import CallRecord

log = logging.getLogger(__name__)


class Journal:
    """A directory of `calls-*.jsonl`; the file being written ends in `.open` until it is complete.

    rotate_records, rotate_s : a file is closed after so many calls or seconds
    """

    def __init__(
        self,
        directory: Path,
        counters: Counters,
        rotate_records: int = 10_000,
        rotate_s: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory, self.counters = directory, counters
        self.rotate_records, self.rotate_s, self.clock = rotate_records, rotate_s, clock
        self._file: IO[str] | None = None
        self._path = Path()
        self._count = self._files = self._unflushed = 0
        self._opened_s = 0.0

    def add(self, record: CallRecord) -> None:
        """Write one record; what cannot be written is counted and lost."""
        self._unflushed += 1
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            self._file.write(line_of(record))
            self._count += 1
        except OSError as problem:
            self._lose(problem)
        if self._count >= self.rotate_records or self.clock() - self._opened_s >= self.rotate_s:
            self.close()

    def flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
                self._unflushed = 0
            except OSError as problem:
                self._lose(problem)

    def close(self) -> None:
        """Complete the file that is open."""
        self.flush()
        if self._file is not None:
            try:
                self._file.close()
                self._path.rename(self._path.with_suffix(""))
            except OSError as problem:
                self._lose(problem)
            self._file = None

    def _lose(self, problem: OSError) -> None:
        """The file is of no use any more, nor is what it was given since it was last flushed."""
        if not self.counters.total("dropped_records"):
            log.warning("finished calls cannot be written to %s: %s", self.directory, problem)
        for _ in range(self._unflushed):
            self.counters.add("dropped_records")
        self._unflushed = 0
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._files += 1
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self.clock()))
        self._path = self.directory / f"calls-{stamp}-{os.getpid()}-{self._files:04d}.jsonl.open"
        self._file = self._path.open("a", encoding="utf-8")
        self._count, self._opened_s = 0, self.clock()


def line_of(record: CallRecord) -> str:
    """One line of JSON without unset fields; bytes as base64."""
    row = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in asdict(record).items()
        if value is not None
    }
    return json.dumps(row, separators=(",", ":")) + "\n"

"""Decisions kept for those who ask why: the latest in memory, all of them in a file beside the records."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarmx.types import Receipt

log = logging.getLogger(__name__)
NAME, OLD_NAME = "receipts.jsonl", "receipts.old.jsonl"
ROTATE_BYTES = 64 * 2**20


class ReceiptStore:
    """Keeps the latest `limit` receipts; with a directory, `flush` (in a thread of its own) appends them to a file."""

    def __init__(self, limit: int, directory: Path | None = None) -> None:
        self.limit = limit
        self.directory = directory
        self._kept: OrderedDict[str, Receipt] = OrderedDict()
        self._fresh: deque[Receipt] = deque(maxlen=limit)
        self._lock = threading.Lock()

    def add(self, receipt: Receipt) -> None:
        self._kept[receipt.id] = receipt
        if len(self._kept) > self.limit:
            self._kept.popitem(last=False)
        if self.directory is not None:
            self._fresh.append(receipt)

    def get(self, receipt_id: str) -> Receipt | None:
        return self._kept.get(receipt_id)

    def of_call(self, call_id: str) -> list[Receipt]:
        """All decisions about a call that are still kept, oldest first."""
        return [r for r in self._kept.values() if r.call_id == call_id]

    def latest(self, count: int) -> Iterator[Receipt]:
        """Newest first."""
        for i, receipt in enumerate(reversed(self._kept.values())):
            if i == count:
                return
            yield receipt

    def flush(self) -> None:
        """Append what is new; what cannot be written is dropped with a warning, as it explains and does not count."""
        if self.directory is None or not self._fresh:
            return
        with self._lock:
            lines = []
            while self._fresh:
                lines.append(json.dumps(asdict(self._fresh.popleft()), separators=(",", ":")) + "\n")
            path = self.directory / NAME
            try:
                if path.exists() and path.stat().st_size > ROTATE_BYTES:
                    path.replace(path.with_name(OLD_NAME))
                with path.open("a", encoding="utf-8") as out:
                    out.writelines(lines)
            except OSError as problem:
                log.warning("receipts cannot be written: %s", problem)


def find_receipt(directory: Path, wanted: str) -> list[dict[str, Any]]:
    """Receipts of that id, or of the call of that id, from the files of a log directory, oldest first.

    Directories in it are looked into as well: where several processes log, each has one.
    """
    found = []
    for path in sorted([*directory.rglob(OLD_NAME), *directory.rglob(NAME)], key=lambda p: p.stat().st_mtime):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if wanted not in line:
                    continue
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if wanted in (row.get("id"), row.get("call_id")):
                    found.append(row)
    return sorted(found, key=lambda row: float(row.get("decided_s", 0.0)))

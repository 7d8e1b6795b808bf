"""Follows a directory into which servers write finished calls: new Parquet files, and journals as they grow.

The gateway appends to `calls.jsonl` and closes it into `calls-*.parquet`; the picker writes `calls-*.jsonl.open`, then
drops the `.open`. A call may thus be met twice; it is handed on once.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.types import CallRecord

log = logging.getLogger(__name__)
MOST_SEEN = 50_000  # ids by which a call that is met again is known
MOST_BYTES = 8 << 20  # read of a journal at once
FIELDS = {f.name for f in fields(CallRecord)}


@dataclass
class RecordDirectory:
    """root : the log directory. `position` outlives the process: `RecordDirectory(root).go_to(position)`"""

    root: Path
    _offsets: dict[str, int] = field(default_factory=dict)
    _seen: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def read(self) -> list[CallRecord]:
        """Calls that are new since the last time, by when they ended; of journals at most `MOST_BYTES` each.

        A file that cannot be read is told in the log and tried again, a line that is not whole is waited for.
        """
        found: list[CallRecord] = []
        for path in sorted(self.root.glob("*")) if self.root.is_dir() else ():
            try:
                if path.suffix == ".parquet" and not path.name.startswith("."):
                    found += self._table(path)
                elif path.name.removesuffix(".open").endswith(".jsonl") and path.name.startswith("calls"):
                    found += self._journal(path)
            except (OSError, BadInput) as problem:
                log.warning("%s is left out for now: %s", path, problem)
        fresh = [record for record in found if self._is_new(record.call_id)]
        return sorted(fresh, key=lambda r: r.arrival_s if r.finished_s is None else r.finished_s)

    @property
    def position(self) -> dict[str, Any]:
        return {"offsets": dict(self._offsets), "seen": list(self._seen)}

    def go_to(self, position: Mapping[str, Any]) -> RecordDirectory:
        """Go on where another one was; an empty position is the beginning."""
        self._offsets = {str(name): int(at) for name, at in position.get("offsets", {}).items()}
        self._seen = OrderedDict.fromkeys(position.get("seen", ()))
        return self

    def _table(self, path: Path) -> list[CallRecord]:
        if path.name in self._offsets:
            return []
        from swarmx.logs.table import read_log

        records = read_log(path)
        self._offsets[path.name] = len(records)
        return records

    def _journal(self, path: Path) -> list[CallRecord]:
        name = path.name.removesuffix(".open")
        at = self._offsets.get(name, 0)
        if path.stat().st_size < at:
            at = 0  # another file of that name
        with path.open("rb") as file:
            file.seek(at)
            block = file.read(MOST_BYTES)
        whole = block[: block.rfind(b"\n") + 1]
        self._offsets[name] = at + len(whole)
        return [record for line in whole.splitlines() if (record := _record(line)) is not None]

    def _is_new(self, call_id: str) -> bool:
        if call_id in self._seen:
            return False
        self._seen[call_id] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return True


def _record(line: bytes) -> CallRecord | None:
    try:
        row = {name: value for name, value in json.loads(line).items() if name in FIELDS}
        if "embedding" in row:
            row["embedding"] = base64.b64decode(row["embedding"])
        for name in ("waits_for", "predicted_tokens"):
            if name in row:
                row[name] = tuple(row[name])
        return CallRecord(**row)
    except (ValueError, TypeError, AttributeError):
        return None

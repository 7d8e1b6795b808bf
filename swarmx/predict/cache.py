"""Least recently used values within a bound of bytes, keyed by short texts or digests of longer ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")
ENTRY_BYTES = 200  # key, headers of value and table entry


def digest(parts: Iterable[str]) -> bytes:
    """16 bytes that stand for these texts in this order."""
    found = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "replace")
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.digest()


class ByteCache(Generic[Value]):
    """Values with their sizes; drops the least recently used beyond `limit_bytes`. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._rows: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            found = self._rows.get(key)
            if found is None:
                return None
            self._rows.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Value, value_bytes: int) -> None:
        """Keep a value of that size; one that is larger than the bound, or is here already, is left out."""
        size = value_bytes + ENTRY_BYTES
        with self._lock:
            if key in self._rows or size > self.limit_bytes:
                return
            self._rows[key] = value, size
            self.used_bytes += size
            while self.used_bytes > self.limit_bytes:
                _, (_, old) = self._rows.popitem(last=False)
                self.used_bytes -= old

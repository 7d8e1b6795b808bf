"""Wall-clock time that never jumps."""

from __future__ import annotations

import time


class Clock:
    """Seconds since the epoch, anchored once and then monotonic, so that clients' wall times can be compared to it."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset_s

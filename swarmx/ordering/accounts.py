"""What each lane has been charged, and the virtual time at which a newcomer starts."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush


class Accounts:
    """Lane -> charge so far, never below the virtual time at which it last began to wait.

    The virtual time is the least account among lanes with waiting calls, or the last such value while nobody waits. A
    lane that opens is lifted to it, so that time spent away earns no credit (and a newcomer cannot monopolise).
    Lanes beyond `limit` that have nothing waiting are forgotten, longest unused first: they start anew as newcomers.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self.limit = limit
        self._charged: OrderedDict[str, float] = OrderedDict()
        self._open: set[str] = set()
        self._heap: list[tuple[float, str]] = []
        self._time = 0.0
        self._touched: set[str] = set()

    def __getitem__(self, lane: str) -> float:
        return self._charged.get(lane, self._time)

    @property
    def virtual_time(self) -> float:
        heap = self._heap
        while heap and (heap[0][1] not in self._open or heap[0][0] != self._charged[heap[0][1]]):
            heappop(heap)
        if heap:
            self._time = max(self._time, heap[0][0])
        return self._time

    def open(self, lane: str) -> None:
        """The lane has calls waiting from now on."""
        value = max(self._charged.get(lane, 0.0), self.virtual_time)
        self._open.add(lane)
        self._set(lane, value)
        if len(self._charged) > self.limit:
            self._forget()

    def close(self, lane: str) -> None:
        self._time = self.virtual_time
        self._open.discard(lane)

    def charge(self, lane: str, amount: float) -> None:
        """Add to a lane's account; negative settles what was charged too much."""
        self._set(lane, self[lane] + amount)

    def touched(self) -> set[str]:
        """Lanes charged since the last question."""
        found, self._touched = self._touched, set()
        return found

    def _set(self, lane: str, value: float) -> None:
        self._charged[lane] = value
        self._charged.move_to_end(lane)
        self._touched.add(lane)
        if lane in self._open:
            heappush(self._heap, (value, lane))
            if len(self._heap) > 4 * len(self._open) + 64:
                self._heap = sorted((self._charged[name], name) for name in self._open)

    def _forget(self) -> None:
        for lane in self._charged:
            if lane not in self._open:
                del self._charged[lane]
                return

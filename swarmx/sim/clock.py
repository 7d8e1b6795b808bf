"""Simulated time: a heap of what will happen, and a queue of what happens next at the same moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class Clock:
    """Actions run one after another, in order of time, then of being planned; what is `soon` runs before the rest."""

    __slots__ = ("_heap", "_number", "_soon", "is_over", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.is_over = False
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._soon: deque[tuple[Action, Any]] = deque()
        self._number = 0

    def at(self, time_s: float, action: Action, argument: Any) -> None:
        self._number += 1
        heappush(self._heap, (time_s, self._number, action, argument))

    def soon(self, action: Action, argument: Any) -> None:
        """Now, but after the running action has ended, so that actions never nest."""
        self._soon.append((action, argument))

    def run(self) -> None:
        """Until nothing is planned or somebody has set `is_over`."""
        heap, soon = self._heap, self._soon
        while heap and not self.is_over:
            self.now, _, action, argument = heappop(heap)
            action(argument)
            while soon:
                action, argument = soon.popleft()
                action(argument)

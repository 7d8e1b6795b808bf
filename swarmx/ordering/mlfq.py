"""Multi-level feedback queue over agent lanes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from math import inf

from swarmx.ordering.contract import Asked, LaneOf, lane_of
from swarmx.types import Call
from swarmx.waiting import Waiting


class Mlfq:
    """A lane starts on top and sinks a level when it has used up the level's quantum of service; boosts lift all.

    quanta_s : seconds of service on each level before a lane sinks; the last level has none
    boost_s : so often every lane is back on top with its quanta unused
    Levels are served strictly in order, first come first served within one. Service is counted when a call stops, in
    seconds on its replica. A lane on the lowest level is on top again after at most boost_s; then at most the calls
    waiting on top before it precede it. After AgentRM (arXiv 2603.13110), whose quanta are not published.
    Raises ValueError when quanta do not increase to positive numbers or boost_s is not positive.
    """

    def __init__(
        self, quanta_s: tuple[float, ...] = (2.0, 8.0), boost_s: float = 30.0, per: LaneOf = "workflow"
    ) -> None:
        if not quanta_s or min(quanta_s) <= 0 or boost_s <= 0:
            raise ValueError(f"quanta and boost must be positive seconds, got {quanta_s} and {boost_s}")
        self.quanta_s = tuple(quanta_s)
        self.boost_s = boost_s
        self.per = per
        self._ends = [sum(self.quanta_s[: i + 1]) for i in range(len(self.quanta_s))]
        self._used: dict[str, float] = {}
        self._since: dict[str, float] = {}  # call in flight -> start
        self._touched: set[str] | None = set()
        self._next_boost = -inf

    def key(self, asked: Asked) -> float:
        return asked.call.arrival_s

    def lane(self, call: Call) -> str:
        return lane_of(call, self.per)

    def score(self, lane: str) -> float:
        """Its level, 0 on top."""
        return float(bisect_right(self._ends, self._used.get(lane, 0.0)))

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score

    def opened(self, lane: str) -> None:
        """A lane comes back on the level that it left."""

    def closed(self, lane: str) -> None:
        """Its use is kept until the next boost."""

    def touched(self) -> Collection[str] | None:
        found, self._touched = self._touched, set()
        return found

    def passed(self, now: float) -> None:
        if now >= self._next_boost:
            if self._used:
                self._used.clear()
                self._touched = None
            self._next_boost = now + self.boost_s

    def started(self, waiting: Waiting, now: float) -> None:
        self._since[waiting.call.id] = now

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        begin = self._since.pop(waiting.call.id, None)
        if begin is not None:
            lane = self.lane(waiting.call)
            self._used[lane] = self._used.get(lane, 0.0) + now - begin
            if self._touched is not None:
                self._touched.add(lane)

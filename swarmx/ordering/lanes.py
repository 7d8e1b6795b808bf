"""The queue of a discipline that scores lanes: calls in lanes, lanes by score."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf

from swarmx.ordering.contract import Hooks, LaneOrder
from swarmx.waiting import Key, Waiting, WaitingQueue

FRONT = 2  # calls of a lane that stand in the common order; the others wait behind them
OWED = -1  # class of a lane that is below its floor

Behind = tuple[float, int, Waiting]  # since when it waits, number
Inner = tuple[float, float, str]  # the discipline's key inside the lane, call arrival, id


class _Lane:
    __slots__ = ("items", "keys")

    def __init__(self) -> None:
        self.keys: list[Inner] = []
        self.items: list[Waiting] = []


class LaneQueue(WaitingQueue):
    """Each lane's first `front` calls stand in the common order, where their starts one after another would put them.

    The key of a call there is (class, score of its lane after the calls before it, key inside the lane, id). Taking or
    adding a call moves one lane: O(front * log n), whatever waits behind; nothing, when the score moved as foreseen.
    The order is right after `settle`.
    """

    refills = True

    def __init__(self, order: LaneOrder, front: int = FRONT) -> None:
        super().__init__()
        self.front = front
        self._order = order
        self._owed: Callable[[str], bool] = Hooks.of(order).owed
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._count: dict[str, int] = {}
        self._behind: tuple[list[Behind], ...] = ([], [], [])  # by class: heaps of calls behind their lane's front
        self._number = 0
        self._moved: dict[tuple[int, str], None] = {}  # lanes to be lined up

    def add(self, waiting: Waiting) -> None:
        """Insert into its lane. Raises ValueError when a call of that id waits already."""
        waiting.key = (waiting.level, inf, waiting.order_key, waiting.call.id)
        super().add(waiting)
        name = self._order.lane(waiting.call)
        self._count[name] = self._count.get(name, 0) + 1
        if self._count[name] == 1:
            self._order.opened(name)
        lane = self._lanes.setdefault((waiting.level, name), _Lane())
        place = bisect_left(lane.keys, _inner(waiting))
        lane.keys.insert(place, _inner(waiting))
        lane.items.insert(place, waiting)
        if place < self.front:
            if len(lane.items) > self.front:
                self._park(lane.items[self.front])
            self._moved[waiting.level, name] = None
        else:
            self._stand_behind(waiting)

    def remove(self, waiting: Waiting) -> int:
        """Take a call out; returns the place it had in the common order."""
        name = self._order.lane(waiting.call)
        lane = self._lanes[waiting.level, name]
        place = bisect_left(lane.keys, _inner(waiting))
        del lane.keys[place], lane.items[place]
        found = super().remove(waiting)
        self._count[name] -= 1
        if not lane.items:
            del self._lanes[waiting.level, name]
        elif place < self.front:
            self._moved[waiting.level, name] = None
        if not self._count[name]:
            del self._count[name]
            self._order.closed(name)
        return found

    def rekey(self, waiting: Waiting, key: Key) -> None:
        """Give a waiting call another class or another key inside its lane."""
        name = self._order.lane(waiting.call)
        self._count[name] = self._count.get(name, 0) + 1  # the lane stays open meanwhile
        self.remove(waiting)
        waiting.level, waiting.order_key = key[0], key[1]
        self.add(waiting)
        self._count[name] -= 1

    def make_due(self, waiting: Waiting) -> None:
        """As in `WaitingQueue`; a call behind its lane's front comes into the order."""
        self._offer(waiting)
        super().make_due(waiting)

    def mark_due(self, overtakes: int, since_s: Sequence[float]) -> list[int]:
        """As in `WaitingQueue`; calls behind their lane's front that have waited since then come into the order too."""
        for level, heap in enumerate(self._behind):
            while heap and heap[0][0] <= since_s[level]:
                waiting = heappop(heap)[2]
                if self.get(waiting.call.id) is waiting:
                    self._offer(waiting)
        return super().mark_due(overtakes, since_s)

    def settle(self) -> None:
        """Move the lanes whose calls or score have changed."""
        touched = self._order.touched()
        moved, self._moved = self._moved, {}
        for name in self._count if touched is None else sorted(touched):
            if name in self._count:
                moved |= {(level, name): None for level in range(3)}
        for level, name in moved:
            if (level, name) in self._lanes:
                self._line_up(level, name)

    def _offer(self, waiting: Waiting) -> None:
        if waiting.key[1] == inf:
            score = self._order.score(self._order.lane(waiting.call))
            self.move(waiting, (waiting.level, score, waiting.order_key, waiting.call.id))

    def _line_up(self, level: int, name: str) -> None:
        """Put the lane's front where its score says."""
        lane = self._lanes[level, name]
        shown = OWED if self._owed(name) else level
        score = self._order.score(name)
        for waiting in lane.items[: self.front]:
            key = (shown, score, waiting.order_key, waiting.call.id)
            if key != waiting.key:
                self.move(waiting, key)
            score = self._order.after(score, name, waiting)

    def _park(self, waiting: Waiting) -> None:
        if waiting.key[1] != inf:
            self.move(waiting, (waiting.level, inf, waiting.order_key, waiting.call.id))
            self._stand_behind(waiting)

    def _stand_behind(self, waiting: Waiting) -> None:
        heap = self._behind[waiting.level]
        self._number += 1
        heappush(heap, (waiting.since_s, self._number, waiting))
        if len(heap) > 2 * len(self._by_id) + 64:
            heap[:] = sorted({id(e[2]): e for e in heap if self.get(e[2].call.id) is e[2]}.values())


def _inner(waiting: Waiting) -> Inner:
    return waiting.order_key, waiting.call.arrival_s, waiting.call.id

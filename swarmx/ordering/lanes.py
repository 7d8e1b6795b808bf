"""The queue of a discipline that scores lanes: calls in lanes, lanes by score."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf

from swarmx.ordering.contract import Hooks, LaneOrder
from swarmx.waiting import Key, Waiting, WaitingQueue

FRONT = 2  # calls of a lane that stand in the common order; the others wait behind them
OWED = -1  # class of a lane that is below its floor

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

    def _line_up(self, level: int, name: str) -> None:
        """Put the lane's front where its score says."""
        lane = self._lanes[level, name]
        shown = OWED if self._owed(name) else level
        score = self._order.score(name)
        for waiting in lane.items[: self.front]:
            key = (shown, score, waiting.order_key, waiting.call.id)
            if key != waiting.key:
                self._move(waiting, key)
            score = self._order.after(score, name, waiting)

    def _park(self, waiting: Waiting) -> None:
        if waiting.key[1] != inf:
            self._move(waiting, (waiting.level, inf, waiting.order_key, waiting.call.id))

    def _move(self, waiting: Waiting, key: Key) -> None:
        """In the common order alone."""
        super().remove(waiting)
        waiting.key = key
        super().add(waiting)


def _inner(waiting: Waiting) -> Inner:
    return waiting.order_key, waiting.call.arrival_s, waiting.call.id

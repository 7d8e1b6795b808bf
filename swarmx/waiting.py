"""Calls that wait for a replica, kept in the order in which they will be looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.quantiles import QuantileGrid, tail_excess
from swarmx.types import Call, Prediction

Array = NDArray[np.float64]
Key = tuple[int, float, float, str]  # class, the discipline's key, call arrival, id
NO_PIN = ""


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """The numbers that scheduling needs of an output-length distribution, in tokens.

    mean, own : expected, and as counted in the call's own finish
    grid : (K,) quantiles; excess : mean excess above the last of them
    """

    mean: float
    own: float
    grid: NDArray[np.float64]
    excess: float


def lengths_of(
    tokens: QuantileGrid, max_tokens: int | None, own_of: str = "mean", sd_weight: float = 0.5, level: float = 0.95
) -> Lengths:
    """Read them off a distribution, cut at max_tokens; own_of is "mean", "mean_sd" or "quantile"."""
    if max_tokens is not None and tokens.values[-1] > max_tokens:
        tokens = QuantileGrid(tokens.levels, np.minimum(tokens.values, float(max_tokens)))
    mean = float(tokens.mean())
    own = mean
    if own_of == "mean_sd":
        own = mean + sd_weight * float(tokens.sd())
    elif own_of == "quantile":
        own = float(tokens.at(level))
    return Lengths(mean, own, tokens.values, float(tail_excess(tokens)))


@dataclass(slots=True)
class Waiting:
    """One waiting call with what the scheduler decided about it so far.

    since_s, overtaken : what makes it due; the queue's table counts overtakes while it waits
    due_s : when it came due; pin : the replica a due call waits for
    refused : replica -> time until which it is not asked again
    level : its class, the number of its priority or of a better one that it has inherited
    order_key : what the discipline said; the key may be of another making (see `swarmx.ordering.lanes`)
    interrupted : how often it was taken off a replica; attained : output tokens that it had produced by then
    row : of its numbers in the queue's table, -1 while it has none
    """

    call: Call
    prediction: Prediction
    lengths: Lengths
    key: Key
    since_s: float
    overtaken: int = 0
    due_s: float | None = None
    pin: str = NO_PIN
    attempts: int = 0
    refused: dict[str, float] = field(default_factory=dict)
    level: int = 1
    order_key: float = 0.0
    interrupted: int = 0
    attained: float = 0.0
    row: int = -1


class WaitingQueue:
    """Waiting calls sorted by key, with their numbers in a table (columns in `swarmx.kernel`) where each keeps its row.

    Insertion and removal cost a binary search and a shift of references; numbers do not move. A call with an infinite
    second key is kept but not in the order, and not offered, until `rekey` gives it another.
    """

    refills = False  # whether calls that are not in the order may come into it when others leave

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._items: list[Waiting] = []
        self._by_id: dict[str, Waiting] = {}
        self.numbers: Array = np.zeros((0, kernel.WAITING_COLUMNS))  # a row per call, where it stays while it waits
        self._line: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # rows in order, of which len(self) count
        self._found: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # room for the places of due calls
        self._free: list[int] = []
        self.tracking_prefix = 0  # calls that carry prefix blocks
        self.refused = 0  # calls that some replica has refused
        self.starts_since_due = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._by_id

    def calls(self) -> list[Waiting]:
        """All that wait, in no particular order, those included that are not offered."""
        return list(self._by_id.values())

    def get(self, call_id: str) -> Waiting | None:
        return self._by_id.get(call_id)

    def add(self, waiting: Waiting) -> None:
        """Insert by key. Raises ValueError when a call of that id waits already."""
        call = waiting.call
        if call.id in self._by_id:
            raise ValueError(f"call {call.id!r} waits already")
        self._by_id[call.id] = waiting
        if waiting.key[1] == inf:
            return
        self._write(waiting)
        self._insert(waiting)
        self.tracking_prefix += bool(call.prefix_blocks)
        self.refused += bool(waiting.refused)

    def remove(self, waiting: Waiting) -> int:
        """Take a call out; returns the place it had, 0 for one that was not in the order."""
        del self._by_id[waiting.call.id]
        if waiting.key[1] == inf:
            return 0
        place = self._take_out(waiting)
        self._forget(waiting)
        self.tracking_prefix -= bool(waiting.call.prefix_blocks)
        self.refused -= bool(waiting.refused)
        return place

    def move(self, waiting: Waiting, key: Key) -> None:
        """To another place in the order, or out of it or into it; all else stays."""
        if waiting.key[1] == inf or key[1] == inf:
            WaitingQueue.remove(self, waiting)
            waiting.key = key
            WaitingQueue.add(self, waiting)
            return
        self._take_out(waiting)
        waiting.key = key
        self._insert(waiting)

    def start(self, waiting: Waiting) -> None:
        """Take out a call that starts; those with a smaller key were overtaken once more."""
        place = self.remove(waiting)
        if place:
            kernel.overtake(self.numbers, self._line, place)
        self.starts_since_due = 0 if waiting.due_s is not None else self.starts_since_due + 1

    def rekey(self, waiting: Waiting, key: Key) -> None:
        """Give a waiting call another place."""
        self.remove(waiting)
        waiting.key = key
        waiting.level, waiting.order_key = key[0], key[1]
        self.add(waiting)

    def settle(self) -> None:
        """Bring the order up to date with the discipline; here a key changes only by `rekey`."""

    def slice(self, place: int, count: int) -> list[Waiting]:
        """Up to `count` calls from that place on."""
        return self._items[place : place + count]

    def line(self, place: int, count: int) -> NDArray[np.int64]:
        """(up to count,) rows of the same calls in `numbers`, a view."""
        return self._line[place : min(place + count, len(self._items))]

    def make_due(self, waiting: Waiting) -> None:
        """Note that the call is due, for whatever reason; it is in the order after that."""
        self.numbers[waiting.row, kernel.W_DUE] = kernel.SKIP

    def mark_due(self, overtakes: int, since_s: Sequence[float]) -> list[int]:
        """Places of calls that were overtaken so often or have waited since then; they are due from now on.

        since_s : by class, the call's own even where it is shown above all classes
        """
        if not self._items:
            return []
        count = kernel.mark_due(
            self.numbers, self._line, len(self._items), float(overtakes), tuple(since_s), self._found
        )
        found: list[int] = self._found[:count].tolist() if count else []
        return found

    def _insert(self, waiting: Waiting) -> None:
        """To its place in the order, by its key."""
        place, count = bisect_left(self._keys, waiting.key), len(self._items)
        self._keys.insert(place, waiting.key)
        self._items.insert(place, waiting)
        self._line[place + 1 : count + 1] = self._line[place:count]
        self._line[place] = waiting.row

    def _take_out(self, waiting: Waiting) -> int:
        """Out of the order; returns the place it had."""
        place, count = bisect_left(self._keys, waiting.key), len(self._items)
        del self._keys[place], self._items[place]
        self._line[place : count - 1] = self._line[place + 1 : count]
        return place

    def _write(self, waiting: Waiting) -> None:
        """Give the call a row with its numbers."""
        if not self._free:
            self._grow()
        call, lengths, row = waiting.call, waiting.lengths, self._free.pop()
        limit = inf if call.max_tokens is None else call.max_tokens
        due = 0.0 if waiting.due_s is None else kernel.SKIP
        self.numbers[row] = (
            lengths.mean, lengths.own, call.prompt_tokens, limit, due, -1.0, waiting.overtaken, waiting.since_s,
            waiting.level,
        )  # fmt: skip
        waiting.row = row

    def _forget(self, waiting: Waiting) -> None:
        """Free the call's row."""
        waiting.overtaken = int(self.numbers[waiting.row, kernel.W_OVERTAKEN])
        self._free.append(waiting.row)
        waiting.row = -1

    def _grow(self) -> None:
        size = len(self.numbers)
        more = max(64, size)
        self.numbers = np.concatenate([self.numbers, np.zeros((more, kernel.WAITING_COLUMNS))])
        self._line = np.concatenate([self._line, np.zeros(more, dtype=np.int64)])
        self._found = np.zeros_like(self._line)
        self._free += range(size + more - 1, size - 1, -1)

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
        self._numbers: Array = np.zeros((kernel.WAITING_COLUMNS, 0))  # a column per number, a row's number per call
        self._levels: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self._at: list[Waiting | None] = []  # row -> whose numbers it holds
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
        place = bisect_left(self._keys, waiting.key)
        self._keys.insert(place, waiting.key)
        self._items.insert(place, waiting)
        self._write(waiting)
        self.tracking_prefix += bool(call.prefix_blocks)
        self.refused += bool(waiting.refused)

    def remove(self, waiting: Waiting) -> int:
        """Take a call out; returns the place it had, 0 for one that was not in the order."""
        del self._by_id[waiting.call.id]
        if waiting.key[1] == inf:
            return 0
        place = bisect_left(self._keys, waiting.key)
        del self._keys[place], self._items[place]
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
        place = bisect_left(self._keys, waiting.key)
        del self._keys[place], self._items[place]
        waiting.key = key
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._items.insert(place, waiting)

    def start(self, waiting: Waiting) -> None:
        """Take out a call that starts; those with a smaller key were overtaken once more."""
        place = self.remove(waiting)
        if place:
            self._numbers[kernel.W_OVERTAKEN, [w.row for w in self._items[:place]]] += 1
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

    def rows(self, place: int, count: int) -> Array:
        """(up to count, WAITING_COLUMNS) numbers of the same calls, a copy."""
        wanted = [w.row for w in self._items[place : place + count]]
        return np.ascontiguousarray(self._numbers[:, wanted].T)

    def row(self, waiting: Waiting) -> Array:
        """(WAITING_COLUMNS,) numbers of one call, a copy."""
        return self._numbers[:, waiting.row].copy()

    def make_due(self, waiting: Waiting) -> None:
        """Note that the call is due, for whatever reason; it is in the order after that."""
        self._numbers[kernel.W_DUE, waiting.row] = kernel.SKIP

    def mark_due(self, overtakes: int, since_s: Sequence[float]) -> list[int]:
        """Places of calls that were overtaken so often or have waited since then; they are due from now on.

        since_s : by class, the call's own even where it is shown above all classes
        """
        numbers = self._numbers
        mask = numbers[kernel.W_OVERTAKEN] >= overtakes
        mask |= numbers[kernel.W_SINCE] <= np.asarray(since_s)[self._levels]
        mask |= numbers[kernel.W_DUE] < 0
        found = np.flatnonzero(mask)
        if not found.size:
            return []
        numbers[kernel.W_DUE, found] = kernel.SKIP
        due = [self._at[row] for row in found.tolist()]
        return sorted(bisect_left(self._keys, waiting.key) for waiting in due if waiting is not None)

    def _write(self, waiting: Waiting) -> None:
        """Give the call a row with its numbers."""
        if not self._free:
            self._grow()
        call, lengths, row = waiting.call, waiting.lengths, self._free.pop()
        limit = inf if call.max_tokens is None else call.max_tokens
        due = 0.0 if waiting.due_s is None else kernel.SKIP
        self._numbers[:, row] = (
            lengths.mean, lengths.own, call.prompt_tokens, limit, due, -1.0, waiting.overtaken, waiting.since_s
        )  # fmt: skip
        self._levels[row] = waiting.level
        self._at[row], waiting.row = waiting, row

    def _forget(self, waiting: Waiting) -> None:
        """Free the call's row; an empty row is never due."""
        row = waiting.row
        waiting.overtaken = int(self._numbers[kernel.W_OVERTAKEN, row])
        self._numbers[kernel.W_OVERTAKEN, row], self._numbers[kernel.W_DUE, row] = -inf, 0.0
        self._numbers[kernel.W_SINCE, row] = inf
        self._at[row], waiting.row = None, -1
        self._free.append(row)

    def _grow(self) -> None:
        size = len(self._at)
        more = max(64, size)
        empty = np.zeros((kernel.WAITING_COLUMNS, more))
        empty[kernel.W_OVERTAKEN], empty[kernel.W_SINCE] = -inf, inf
        self._numbers = np.concatenate([self._numbers, empty], axis=1)
        self._levels = np.concatenate([self._levels, np.zeros(more, dtype=np.int8)])
        self._at += [None] * more
        self._free += range(size + more - 1, size - 1, -1)

"""Calls that wait for a replica, kept in the order in which they will be looked at."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import QuantileGrid, tail_excess
from swarmx.types import Call, Prediction

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

    since_s, overtaken : what makes it due; due_s : when it came due; pin : the replica a due call waits for
    refused : replica -> time until which it is not asked again
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
    gone: bool = False
    refused: dict[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        return float("inf") if self.call.max_tokens is None else float(self.call.max_tokens)


class WaitingQueue:
    """Waiting calls sorted by key; insertion and removal cost a binary search and a memory move."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._items: list[Waiting] = []
        self._by_id: dict[str, Waiting] = {}
        self._by_age: deque[Waiting] = deque()
        self._most_overtaken = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._by_id

    def get(self, call_id: str) -> Waiting | None:
        return self._by_id.get(call_id)

    def add(self, waiting: Waiting) -> None:
        """Insert by key. Raises ValueError when a call of that id waits already."""
        if waiting.call.id in self._by_id:
            raise ValueError(f"call {waiting.call.id!r} waits already")
        index = bisect_left(self._keys, waiting.key)
        insort(self._keys, waiting.key)
        self._items.insert(index, waiting)
        self._by_id[waiting.call.id] = waiting
        waiting.gone = False
        self._most_overtaken = max(self._most_overtaken, waiting.overtaken)
        if self._by_age and self._by_age[-1].since_s > waiting.since_s:  # a call that was put back
            self._by_age = deque(sorted([*self._by_age, waiting], key=lambda w: w.since_s))
        else:
            self._by_age.append(waiting)

    def remove(self, waiting: Waiting) -> int:
        """Take a call out; returns the place it had."""
        index = bisect_left(self._keys, waiting.key)
        del self._keys[index], self._items[index], self._by_id[waiting.call.id]
        waiting.gone = True
        if not self._items:
            self._most_overtaken = 0
        return index

    def slice(self, place: int, count: int) -> list[Waiting]:
        """Up to `count` calls from that place on."""
        return self._items[place : place + count]

    def most_overtaken(self) -> int:
        """An upper bound on how often any waiting call was overtaken, exact while it is that call's turn to count."""
        return self._most_overtaken

    def overtake(self, place: int) -> None:
        """A call that stood at `place` has started: those before it were overtaken once more."""
        for waiting in self._items[:place]:
            waiting.overtaken += 1
            if waiting.overtaken > self._most_overtaken:
                self._most_overtaken = waiting.overtaken

    def oldest_since(self) -> float | None:
        """When the call that waits longest began to wait."""
        while self._by_age and self._by_age[0].gone:
            self._by_age.popleft()
        return self._by_age[0].since_s if self._by_age else None

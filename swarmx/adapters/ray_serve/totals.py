"""Counters of several sources added up, where sources come and go and begin again at zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Totals:
    """width : counters of a source; sums : what all of them grew by since the first look

    A source that was there at the first look begins at what it says first, a later one at zero.
    """

    width: int
    sums: list[float] = field(default_factory=list)
    _known: dict[str, tuple[float, ...]] = field(default_factory=dict)
    _first: frozenset[str] | None = None

    def add(self, present: Iterable[str], values: Mapping[str, tuple[float, ...]]) -> None:
        """present : sources that exist, whether or not they have said something; values : source -> its counters"""
        names = frozenset(present)
        if self._first is None:
            self._first, self.sums = names, [0.0] * self.width
        for name, now in values.items():
            before = self._known.get(name) or (now if name in self._first else (0.0,) * self.width)
            for place, (a, b) in enumerate(zip(before, now, strict=True)):
                self.sums[place] += b - a if b >= a else b
            self._known[name] = now
        for name in self._known.keys() - names - values.keys():
            del self._known[name]

"""The scaler's side of `swarmx.adapters.live_work`: books of several processes, checked and added up."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.demand import TERMS, PoolDemand

Array = NDArray[np.float64]
Page = Mapping[str, Any]
log = logging.getLogger(__name__)
MAX_PAGE_BYTES = 4 * 2**20
PAGE_S = 2.0


@dataclass(frozen=True, slots=True)
class Book:
    """One page, checked. id : of the process; edges_s : (J + 1,); models : model -> its demand from calls seen there"""

    id: str
    edges_s: Array
    models: Mapping[str, PoolDemand]


def read_book(page: Any) -> Book:
    """Raises ValueError for anything that `LiveDemand.page` cannot have written."""
    try:
        edges = _numbers(page["edges_s"])
        if edges.size < 2 or edges[0] != 0 or not np.all(np.diff(edges) > 0):
            raise ValueError("edges_s must increase from 0")
        models = {str(name): _demand(edges, terms) for name, terms in page["models"].items()}
        return Book(str(page["book"]), edges, models)
    except (KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise ValueError(f"not a page of demand ({problem!r})") from None


def _demand(edges: Array, terms: Mapping[str, Any]) -> PoolDemand:
    found = {term: tuple(map(_numbers, terms[term])) for term in TERMS}
    if any(len(pair) != 2 or any(part.size != edges.size - 1 for part in pair) for pair in found.values()):
        raise ValueError("every term needs a mean and a variance per window")
    return PoolDemand(edges, {t: pair[0] for t, pair in found.items()}, {t: pair[1] for t, pair in found.items()})


def _numbers(values: Any) -> Array:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError("numbers must be finite and not negative")
    return array


@dataclass
class Books:
    """The latest book of every address. One that has been silent is believed for `stale_s`, then forgotten."""

    stale_s: float = 60.0
    _books: dict[str, tuple[Book, float]] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def put(self, url: str, page: Page, now: float) -> None:
        """An answer has come from there, with or without a book."""
        if page.get("demand") is None:
            self._books.pop(url, None)
            return
        try:
            self._books[url] = read_book(page["demand"]), now
        except ValueError as problem:
            self._books.pop(url, None)
            self.warn(f"the demand that {url} publishes cannot be used: {problem}")

    def demand(self, model: str, sources: Sequence[str], now: float) -> PoolDemand | None:
        """What all processes together will ask of the model.

        sources : addresses that see the model's own calls. None unless each of them publishes a book that knows the
        model: the calls that are here already would be missing. So it is when windows differ, which no sum could mend.
        """
        self._books = {url: found for url, found in self._books.items() if now - found[1] <= self.stale_s}
        own = [self._books.get(url) for url in sources]
        if not own or any(found is None or model not in found[0].models for found in own):
            return None
        newest = {book.id: book for book, _ in sorted(self._books.values(), key=lambda found: found[1])}
        books = [book for book in newest.values() if model in book.models]
        if any(not np.array_equal(book.edges_s, books[0].edges_s) for book in books):
            self.warn("demand.horizon_s differs between the processes that route calls: their demands are not used")
            return None
        return _sum([book.models[model] for book in books])

    def warn(self, message: str) -> None:
        """Log it, once."""
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message)


def _sum(parts: Sequence[PoolDemand]) -> PoolDemand:
    """Of independent demands over the same windows."""
    mean = {t: np.sum([part.mean[t] for part in parts], axis=0) for t in TERMS}
    variance = {t: np.sum([part.variance[t] for part in parts], axis=0) for t in TERMS}
    return PoolDemand(parts[0].edges_s, mean, variance)


def read_page(content: bytes) -> Page | None:
    """What a picker or gateway publishes; None for anything else."""
    try:
        page = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return page if isinstance(page, dict) else None

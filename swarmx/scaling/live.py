"""The live work of all pools: which calls wait and run, since when, and how often workflows begin.

Every event is O(1); `demands` turns the book into one `PoolDemand` per model with a few matrix products, whatever the
number of live workflows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from swarmx.scaling.demand import PoolDemand
from swarmx.scaling.profiles import AGES, Profiles

Array = NDArray[np.float64]


class LiveWork:
    """Told of every call by whoever routes it; keeps one row per live call.

    rate_s : arrivals of the last so many seconds give the arrival rate
    """

    def __init__(self, profiles: Profiles, rate_s: float = 60.0) -> None:
        self.profiles = profiles
        self.rate_s = rate_s
        self.clock_s = 0.0
        self.since_s: float | None = None
        self._rows: dict[str, int] = {}
        self._ids: list[str] = []
        self._kind = np.zeros(256, dtype=np.int64)
        self._started = np.zeros(256)
        self._scale = np.zeros(256)
        self._begun: deque[tuple[float, int]] = deque()

    def arrive(
        self, call_id: str, model: str, type_: str | None, now: float, *, is_first: bool, scale: float = 1.0
    ) -> None:
        """A call has been released. A call that is here already is left as it is.

        is_first : it begins a workflow; scale : predicted calls it will cause over its type's average
        """
        kind = self.profiles.row(model, type_)
        self.since_s = now if self.since_s is None else self.since_s
        if kind < 0 or call_id in self._rows:
            return
        row = len(self._ids)
        if row == self._kind.size:
            self._kind = np.resize(self._kind, 2 * row)
            self._started, self._scale = np.resize(self._started, 2 * row), np.resize(self._scale, 2 * row)
        self._rows[call_id] = row
        self._ids.append(call_id)
        self._kind[row], self._started[row], self._scale[row] = kind, np.nan, scale
        if is_first:
            self._begun.append((now, kind))

    def started(self, call_id: str, now: float) -> None:
        """The call holds a slot now."""
        if (row := self._rows.get(call_id)) is not None:
            self._started[row] = now

    def progressed(self, call_id: str, age_s: float, now: float) -> None:
        """The call has done as much as one of that age does at the pace that the profiles were learned at.

        Where replicas slow down under load, as batched engines do, this is what age means; else the clock tells it.
        """
        if (row := self._rows.get(call_id)) is not None and not np.isnan(self._started[row]):
            self._started[row] = now - age_s

    def waits(self, call_id: str) -> None:
        """The call holds no slot any more and waits again."""
        if (row := self._rows.get(call_id)) is not None:
            self._started[row] = np.nan

    def ended(self, call_id: str) -> None:
        """The call is over, in any way."""
        row = self._rows.pop(call_id, None)
        if row is None:
            return
        last = len(self._ids) - 1
        if row != last:
            for column in self._columns():
                column[row] = column[last]
            self._ids[row] = self._ids[last]
            self._rows[self._ids[row]] = row
        self._ids.pop()

    def __len__(self) -> int:
        return len(self._ids)

    def _columns(self) -> tuple[NDArray[np.int64], Array, Array]:
        return self._kind, self._started, self._scale

    def demands(self, now: float, slots: Mapping[str, float] | None = None) -> Mapping[str, PoolDemand]:
        """Demand of each model of the profiles from now on. Arrivals that are too old are forgotten here.

        slots : of each model, where they cannot grow: what waits there causes calls elsewhere only as fast as it is
            served; None: as if all of it started now
        """
        p = self.profiles
        types, models, windows = len(p.types), len(p.models), p.edges_s.size - 1
        home = np.zeros((models, types))
        for (model, _), row in p.types.items():
            home[p.models.index(model), row] = 1.0
        waiting, running, scaled = self._counts(now)
        own_variance = p.own_square - p.own**2
        later, later_square = (a.reshape(types * AGES, models * windows) for a in (p.later, p.later_square))
        downstream, spread = np.zeros((models, windows)), np.zeros((models, windows))
        if slots is not None:
            starts = self._starts(home, scaled[0], slots)
            downstream, spread = np.tensordot(starts, p.fresh_later, 1), np.tensordot(starts, p.fresh_square, 1)
        causing = (scaled[1] if slots is not None else scaled.sum(axis=0)).ravel()
        downstream += (causing @ later).reshape(models, windows)
        spread += (causing @ (later_square - later**2)).reshape(models, windows)
        rates, seen = self._rates(now)
        fresh = np.tensordot(rates, p.fresh, 1)
        doubt = np.tensordot(rates / seen, p.fresh**2, 1)
        terms = {
            "backlog": (home @ (waiting[:, None] * p.own[:, 0]), home @ (waiting[:, None] * own_variance[:, 0])),
            "in_service": (
                home @ np.einsum("ta,taj->tj", running, p.own),
                home @ np.einsum("ta,taj->tj", running, own_variance),
            ),
            "downstream": (downstream, np.maximum(spread, 0.0)),
            "arrivals": (fresh, np.tensordot(rates, p.fresh_square, 1) + doubt),
        }
        return {
            model: PoolDemand(
                p.edges_s, {t: m[i] for t, (m, _) in terms.items()}, {t: v[i] for t, (_, v) in terms.items()}
            )
            for i, model in enumerate(p.models)
        }

    def _starts(self, home: Array, scaled: Array, slots: Mapping[str, float]) -> Array:
        """(T,) waiting calls that start a second: spread over the windows, as many as their pool's slots can serve."""
        p, n = self.profiles, len(self._ids)
        end = p.edges_s[-1]
        work = home @ (np.bincount(self._kind[:n], minlength=len(p.types)) * p.service_s)
        room = np.array([slots.get(model, np.inf) for model in p.models]) * end
        served = np.minimum(room / np.maximum(work, 1e-9), 1.0) @ home
        return np.asarray(scaled[:, 0] * served / end)

    def _counts(self, now: float) -> tuple[Array, Array, Array]:
        """Waiting calls (T,), running calls (T, A); and both (2, T, A) weighted by what they are predicted to cause."""
        n, types = len(self._ids), len(self.profiles.types)
        kind, age, scale = self._kind[:n], now - self._started[:n], self._scale[:n]
        is_running = ~np.isnan(age)
        bins = is_running.astype(np.int64)
        for a in range(2, AGES):
            bins += age >= self.profiles.age_edges_s[kind, a]
        cell = kind * AGES + bins
        both = np.bincount(cell + types * AGES * is_running, minlength=2 * types * AGES).reshape(2, types, AGES)
        scaled = np.bincount(cell + types * AGES * is_running, weights=scale, minlength=2 * types * AGES)
        weighted = scaled.reshape(2, types, AGES).astype(np.float64)
        return both[0, :, 0].astype(np.float64), np.asarray(both[1], dtype=np.float64), weighted

    def _rates(self, now: float) -> tuple[Array, float]:
        """(T,) workflows a second by the type of their first call, and the seconds that this was seen for."""
        while self._begun and self._begun[0][0] < now - self.rate_s:
            self._begun.popleft()
        counts: dict[int, int] = defaultdict(int)
        for _, kind in self._begun:
            counts[kind] += 1
        since = now if self.since_s is None else self.since_s
        seen = min(max(now - since, self.rate_s / 6), self.rate_s)
        rates = np.zeros(len(self.profiles.types))
        for kind, count in counts.items():
            rates[kind] = count / seen
        return rates, seen

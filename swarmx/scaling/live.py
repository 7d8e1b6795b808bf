"""The live work of all pools: which calls wait and run, since when, and how often workflows begin.

Every event is O(1); `demands` turns the book into one `PoolDemand` per model with a few matrix products, whatever the
number of live workflows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import QuantileGrid
from swarmx.scaling.demand import PoolDemand, grid_of_moments
from swarmx.scaling.foreseen import Forecasts, Spread, scales
from swarmx.scaling.profiles import AGES, Profiles
from swarmx.scaling.seasonal import Season

Array = NDArray[np.float64]


class LiveWork:
    """Told of every call by whoever routes it; keeps one row per live call.

    rate_s : arrivals of the last so many seconds give the arrival rate
    season : what it will do next; None: it stays
    """

    def __init__(self, profiles: Profiles, rate_s: float = 60.0, season: Season | None = None) -> None:
        self.profiles = profiles
        self.rate_s, self.season = rate_s, season
        self.since_s: float | None = None
        self._rows: dict[str, int] = {}
        self._ids: list[str] = []
        self._workflows: list[str] = []
        self._members: dict[str, set[str]] = {}
        self._kind = np.zeros(256, dtype=np.int64)
        self._started = np.zeros(256)
        self._forecast = np.zeros(256, dtype=np.int64)
        self._forecasts = Forecasts(len(profiles.models))
        self._spread = Spread(profiles)
        self._begun: deque[tuple[float, int]] = deque()

    def arrive(
        self, call_id: str, model: str, type_: str | None, now: float, *, is_first: bool, workflow: str = ""
    ) -> None:
        """A call has been released. A call that is here already is left as it is.

        is_first : it begins a workflow; workflow : that it belongs to, needed for forecasts alone
        """
        kind = self.profiles.row(model, type_)
        self.since_s = now if self.since_s is None else self.since_s
        if kind < 0 or call_id in self._rows:
            return
        row = len(self._ids)
        if row == self._kind.size:
            self._kind, self._forecast = np.resize(self._kind, 2 * row), np.resize(self._forecast, 2 * row)
            self._started = np.resize(self._started, 2 * row)
        self._rows[call_id] = row
        self._ids.append(call_id)
        self._workflows.append(workflow)
        if workflow:
            self._members.setdefault(workflow, set()).add(call_id)
        self._kind[row], self._started[row], self._forecast[row] = kind, np.nan, -1
        if is_first:
            self._begun.append((now, kind))
            self._forget_begun(now)

    def foresee(self, workflow: str, work: Mapping[str, QuantileGrid]) -> None:
        """A forecast of what the workflow still holds, beside the calls that are here now.

        work : model -> slot-seconds (K,). It holds for these calls until the next one; calls that arrive later count
        as their types' averages until then. A workflow without a live call is left out.
        """
        rows = [self._rows[call] for call in self._members.get(workflow, ())]
        if rows:
            self._forecast[rows] = self._forecasts.put(workflow, *scales(self.profiles, self._kind[rows], work))

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
        self._leave(self._workflows[row], call_id)
        last = len(self._ids) - 1
        if row != last:
            for column in self._columns():
                column[row] = column[last]
            self._ids[row], self._workflows[row] = self._ids[last], self._workflows[last]
            self._rows[self._ids[row]] = row
        self._ids.pop()
        self._workflows.pop()

    def _leave(self, workflow: str, call_id: str) -> None:
        members = self._members.get(workflow)
        if members is not None:
            members.discard(call_id)
            if not members:
                del self._members[workflow]
                self._forecasts.drop(workflow)

    def __len__(self) -> int:
        return len(self._ids)

    def _columns(self) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
        return self._kind, self._started, self._forecast

    def demands(self, now: float, slots: Mapping[str, float] | None = None) -> Mapping[str, PoolDemand]:
        """Demand of each model of the profiles from now on. Arrivals that are too old are forgotten here.

        slots : of each model, where they cannot grow: what waits there causes calls elsewhere only as fast as it is
            served; None: as if all of it started now
        """
        p = self.profiles
        home = np.zeros((len(p.models), len(p.types)))
        for (model, _), row in p.types.items():
            home[p.models.index(model), row] = 1.0
        cells = self._cells(now)
        counts = np.bincount(cells, minlength=2 * len(p.types) * AGES).reshape(2, len(p.types), AGES).astype(np.float64)
        waiting, running = counts[0, :, 0], counts[1]
        own_variance = p.own_square - p.own**2
        rates, seen = self._rates(now)
        trend = np.ones(p.edges_s.size - 1) if self.season is None else self.season.trend(now, seen, p.edges_s)
        terms = {
            "backlog": (home @ (waiting[:, None] * p.own[:, 0]), home @ (waiting[:, None] * own_variance[:, 0])),
            "in_service": (
                home @ np.einsum("ta,taj->tj", running, p.own),
                home @ np.einsum("ta,taj->tj", running, own_variance),
            ),
            "downstream": self._downstream(cells, counts, home, slots),
            "arrivals": (
                np.tensordot(rates, p.fresh, 1) * trend,
                np.tensordot(rates, p.fresh_square, 1) * trend + np.tensordot(rates / seen, p.fresh**2, 1) * trend**2,
            ),
        }
        return {
            model: PoolDemand(
                p.edges_s, {t: m[i] for t, (m, _) in terms.items()}, {t: v[i] for t, (_, v) in terms.items()}
            )
            for i, model in enumerate(p.models)
        }

    def outlook(self, workflow: str, now: float) -> dict[str, QuantileGrid]:
        """Model -> slot-seconds that the workflow's live calls will cause there in each window, (J, K)."""
        members = [self._rows[call] for call in sorted(self._members.get(workflow, ()))]
        size = len(self.profiles.types) * AGES
        cells = self._cells(now)[members] % size
        counts = np.bincount(cells, minlength=size).astype(np.float64)
        mean, variance = self._spread.of(self._forecasts.weights(cells, self._forecast[members], counts))
        return {m: grid_of_moments(mean[i], variance[i]) for i, m in enumerate(self.profiles.models)}

    def _downstream(
        self, cells: NDArray[np.int64], counts: Array, home: Array, slots: Mapping[str, float] | None
    ) -> tuple[Array, Array]:
        """Mean and variance (M, J) of what live calls cause."""
        p, n = self.profiles, len(self._ids)
        size = len(p.types) * AGES
        if slots is None:
            every = self._forecasts.weights(cells % size, self._forecast[:n], counts.sum(axis=0).ravel())
            return self._spread.of(every)
        started = cells >= size
        mean, variance = self._spread.of(
            self._forecasts.weights(cells[started] - size, self._forecast[:n][started], counts[1].ravel())
        )
        waiting = self._forecasts.weights(self._kind[:n][~started], self._forecast[:n][~started], counts[0, :, 0])
        pace = self._pace(home, slots)[:, None]
        mean = mean + np.einsum("tm,tmj->mj", waiting.mean * pace, p.fresh_later)
        return mean, variance + np.einsum("tm,tmj->mj", waiting.timing * pace, p.fresh_square)

    def _pace(self, home: Array, slots: Mapping[str, float]) -> Array:
        """(T,) share of the waiting calls that start a second: as many as their pool's slots can serve by the end."""
        p, n = self.profiles, len(self._ids)
        end = p.edges_s[-1]
        work = home @ (np.bincount(self._kind[:n], minlength=len(p.types)) * p.service_s)
        room = np.array([slots.get(model, np.inf) for model in p.models]) * end
        return np.asarray((np.minimum(room / np.maximum(work, 1e-9), 1.0) @ home) / end)

    def _cells(self, now: float) -> NDArray[np.int64]:
        """(n,) place of every live call in (waiting or running, type, age)."""
        n, types = len(self._ids), len(self.profiles.types)
        kind, age = self._kind[:n], now - self._started[:n]
        is_running = ~np.isnan(age)
        bins = is_running.astype(np.int64)
        for a in range(2, AGES):
            bins += age >= self.profiles.age_edges_s[kind, a]
        return np.asarray(kind * AGES + bins + types * AGES * is_running)

    def _rates(self, now: float) -> tuple[Array, float]:
        """(T,) workflows a second by the type of their first call, and the seconds that this was seen for."""
        self._forget_begun(now)
        counts: dict[int, int] = defaultdict(int)
        for _, kind in self._begun:
            counts[kind] += 1
        since = now if self.since_s is None else self.since_s
        seen = min(max(now - since, self.rate_s / 6), self.rate_s)
        rates = np.zeros(len(self.profiles.types))
        for kind, count in counts.items():
            rates[kind] = count / seen
        return rates, seen

    def _forget_begun(self, now: float) -> None:
        """Nobody may ask for demand for hours; arrivals must not pile up meanwhile."""
        while self._begun and self._begun[0][0] < now - self.rate_s:
            self._begun.popleft()

"""Several pools and device kinds under one budget: who gets how many replicas when not everybody can have all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IDLE = 10.0
TANGENTS = (0.0, 0.3, 0.6, 0.8, 0.95)  # where the integer program touches the shortage, which is no line


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of replica that a pool may run on.

    slots : capacity of one replica, at the pool's mean speed; price : cost of one replica-second
    units : what it takes of the budget (GPUs); available : replicas of this kind that exist, None: any number
    """

    name: str = "default"
    slots: float = 1.0
    price: float = 1.0
    units: float = 1.0
    available: int | None = None


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """What a pool asks of the budget.

    wanted, minimum : replicas of the first kind; busy : (K,) quantiles of busy slots, equally likely, that say what
    a replica less costs: the mean number of calls without a slot
    here : kind -> replicas now; weight : importance of its calls
    wanted_slots : capacity wanted, where kinds differ; None: what `wanted` replicas of the first kind hold
    busy_now : the same until a replica ordered now is ready: what only the present replicas can serve
    """

    pool: str
    wanted: int
    minimum: int
    busy: Array
    kinds: tuple[DeviceKind, ...] = (DeviceKind(),)
    here: Mapping[str, int] = field(default_factory=dict)
    weight: float = 1.0
    wanted_slots: float | None = None
    busy_now: Array | None = None

    @property
    def capacity(self) -> float:
        """Slots wanted."""
        return self.wanted * self.kinds[0].slots if self.wanted_slots is None else self.wanted_slots

    def shortage(self, slots: Array, busy: Array | None = None) -> Array:
        """Mean of (calls without a slot)² / calls, for each capacity given, shape as `slots`; convex, not increasing.

        A slot more takes away twice the share of calls that are still short of one. Where all pools are short, the
        least sum therefore gives each the same share of what it needs, and backlogs end together; the plain number of
        calls without a slot would not care who gets it.
        """
        capacity = np.asarray(slots, dtype=np.float64)[..., None]
        busy = self.busy if busy is None else busy
        over: Array = np.maximum(busy - capacity, 0.0) ** 2 / np.maximum(busy, 1e-9)
        return np.asarray(self.weight * over.mean(axis=-1))


def by_marginal_gain(needs: Sequence[PoolNeed], budget: float, move_gain: float = 0.0) -> dict[str, int]:
    """Replicas of each pool's first kind: minima first, then one by one where the most shortage per unit goes away.

    No pool gets more than it wants. Shortages are convex, so that for equal units this is optimal. Minima are given in
    the order of the pools while the budget lasts.
    move_gain : a replica is taken from a pool when elsewhere it prevents so much more shortage, or `IDLE` times as
        much: one that will hardly be needed here moves, where both are short it takes a reason
    """
    given = {need.pool: 0 for need in needs}
    left = budget
    for need in needs:
        units = need.kinds[0].units
        given[need.pool] = min(need.minimum, int((left + 1e-9) // units))
        left -= given[need.pool] * units
    heap: list[tuple[float, float, int]] = []
    gains: list[Array] = []
    for place, need in enumerate(needs):
        kind = need.kinds[0]
        slots, here = np.arange(need.wanted + 1, dtype=np.float64) * kind.slots, sum(need.here.values())
        gain = np.round(-np.diff(need.shortage(slots)), 6)  # rounded: equal gains are shared out evenly
        if need.busy_now is not None:  # a replica elsewhere would not be ready in time for it
            gain[:here] = np.maximum(gain, np.round(-np.diff(need.shortage(slots, need.busy_now)), 6))[:here]
        gain[:here] = np.minimum(gain[:here] * IDLE, gain[:here] + move_gain)
        gains.append(gain / kind.units)
        if given[need.pool] < need.wanted:
            heap.append((-gains[place][given[need.pool]], _shortfall(need, given), place))
    heapify(heap)
    while heap:
        _, _, place = heappop(heap)
        need = needs[place]
        if left + 1e-9 < need.kinds[0].units:
            continue
        given[need.pool] += 1
        left -= need.kinds[0].units
        if given[need.pool] < need.wanted:
            heappush(heap, (-gains[place][given[need.pool]], _shortfall(need, given), place))
    return given


def _shortfall(need: PoolNeed, given: Mapping[str, int]) -> float:
    """Tie-break between pools whose next replica gains the same: the one that has the smaller share of its wish."""
    return given[need.pool] / max(need.wanted, 1)


def by_integer_program(
    needs: Sequence[PoolNeed], budget: float, redeploy_cost: float = 0.0, shortage_price: float = 10.0
) -> dict[str, dict[str, int]]:
    """pool -> device kind -> replicas, least cost: price of what runs + price of shortage + cost of every change.

    redeploy_cost : of one replica added or taken away, in replica-seconds of price 1 per second until the next decision
    shortage_price : of one slot that is wanted and not given, and of one call without a slot, likewise
    Nobody gets more capacity than it wants, but for what does not divide. Of what is short, most goes where calls would
    wait, see `PoolNeed.shortage`. Solved exactly by HiGHS through `scipy.optimize.milp`.
    Raises ImportError naming the extra when scipy is missing, ValueError when the minima do not fit the budget.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError as problem:
        raise ImportError("the integer program needs scipy; install swarmx-scheduler[train]") from problem
    program = _Program(needs, budget, redeploy_cost, shortage_price)
    matrix, low, high = program.constraints()
    result = milp(
        program.costs,
        constraints=LinearConstraint(matrix, low, high),
        integrality=program.integral,
        bounds=Bounds(0, program.upper),
        options={"time_limit": 1.0},
    )
    if result.x is None:
        raise ValueError(f"no allocation of {budget:g} units meets the minima {[n.minimum for n in needs]}")
    counts = iter(np.rint(result.x[: program.cells]).astype(int).tolist())
    return {need.pool: {kind.name: next(counts) for kind in need.kinds} for need in needs}


class _Program:
    """Columns: counts n (pool × kind), changes |n - here|, shortage at each quantile of each pool, and of its wish."""

    def __init__(self, needs: Sequence[PoolNeed], budget: float, redeploy: float, shortage: float) -> None:
        self.needs, self.budget = needs, budget
        self.kinds = [(p, kind) for p, need in enumerate(needs) for kind in need.kinds]
        self.cells = len(self.kinds)
        short = np.concatenate([np.full(n.busy.size, shortage * n.weight / n.busy.size) for n in needs])
        short = np.concatenate((short, [shortage * n.weight for n in needs]))
        prices = np.array([kind.price for _, kind in self.kinds])
        self.costs = np.concatenate((prices, np.full(self.cells, redeploy), short))
        self.integral = np.concatenate((np.ones(self.cells), np.zeros(self.cells + short.size)))
        most = [np.inf if kind.available is None else kind.available for _, kind in self.kinds]
        self.upper = np.concatenate((np.array(most, dtype=float), np.full(self.cells + short.size, np.inf)))

    def constraints(self) -> tuple[Array, Array, Array]:
        """Rows (matrix, low, high): budget, minima, one per quantile and wish, and both sides of each change."""
        rows: list[Array] = []
        low: list[float] = []
        high: list[float] = []

        def row(entries: Mapping[int, float], least: float, most: float) -> None:
            line = np.zeros(self.costs.size)
            line[list(entries)] = list(entries.values())
            rows.append(line)
            low.append(least)
            high.append(most)

        row({i: kind.units for i, (_, kind) in enumerate(self.kinds)}, 0.0, self.budget)
        column = 2 * self.cells
        for p, need in enumerate(self.needs):
            mine = [i for i, (owner, _) in enumerate(self.kinds) if owner == p]
            row({i: 1.0 for i in mine}, need.minimum, np.inf)
            slots = {i: self.kinds[i][1].slots for i in mine}
            row({**slots, self.costs.size - len(self.needs) + p: 1.0}, need.capacity, np.inf)
            for busy in np.minimum(need.busy, need.capacity):
                for at in TANGENTS:  # of (busy - slots)² / busy, at this share of busy
                    row({**{i: 2 * (1 - at) * n for i, n in slots.items()}, column: 1.0}, busy * (1 - at**2), np.inf)
                column += 1
        for i, (p, kind) in enumerate(self.kinds):
            here = self.needs[p].here.get(kind.name, 0)
            row({i: -1.0, self.cells + i: 1.0}, -here, np.inf)
            row({i: 1.0, self.cells + i: 1.0}, here, np.inf)
        return np.array(rows), np.array(low), np.array(high)

"""The scaler: takes samples of pools, returns what to change. Pure: no I/O, no clock, no global random state.

Adapters and the simulator run this same object. Per pool: policy -> bounds -> budget -> replicas. All that it remembers
is the pools' recent past; `snapshot` hands it out, and a scaler that starts from it decides the same. One that starts
from nothing lowers no pool before its memory reaches back as far as the delay of a fall.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS
from swarmx.scaling.bounded import Bounds, Memory, bounded
from swarmx.scaling.budget import DeviceKind, PoolNeed, by_integer_program, by_marginal_gain
from swarmx.scaling.decisions import Scale, ScaleReceipt, Want
from swarmx.scaling.demand import spread_out
from swarmx.scaling.drain import plan
from swarmx.scaling.policy import ScalingPolicy
from swarmx.scaling.samples import PoolSample
from swarmx.scaling.tail_demand import left_over, ready_slots

Array = NDArray[np.float64]
# normal quantiles of equally likely levels, which stand for a distribution in the budget
EVEN = np.array([NormalDist().inv_cdf((i + 0.5) / 20) for i in range(20)])
NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What is particular to one pool. kinds : device kinds it may run on; weight : of its calls in the budget"""

    bounds: Bounds = NO_BOUNDS
    kinds: tuple[DeviceKind, ...] = (DeviceKind(),)
    weight: float = 1.0


@dataclass
class Scaler:
    """One policy over any number of pools.

    settings : pool -> its own settings, others have `bounds` and one kind; budget : units in all, None: unlimited
    move_gain : see `by_marginal_gain`; redeploy_cost : see `by_integer_program`, used where a pool has several kinds
    with_receipts : whether decisions carry a receipt
    """

    name: str
    policy: ScalingPolicy
    bounds: Bounds = NO_BOUNDS
    settings: Mapping[str, PoolSettings] = field(default_factory=dict)
    budget: float | None = None
    move_gain: float = 0.6
    redeploy_cost: float = 0.0
    with_receipts: bool = True
    memory: dict[str, Memory] = field(default_factory=dict)

    def step(self, samples: Sequence[PoolSample]) -> list[Scale]:
        """One decision per pool whose sample is news; a duplicate or late sample decides nothing."""
        news = [s for s in samples if self.memory.setdefault(s.pool, Memory()).history.add(s)]
        wants = [self.policy.wants(s, self.memory[s.pool].history) for s in news]
        bound = [
            bounded(want, s, self._of(s.pool).bounds, self.memory[s.pool]) for want, s in zip(wants, news, strict=True)
        ]
        targets = [target for target, _ in bound]
        kinds = self._shared(news, targets)
        return [
            self._decide(sample, want, target, notes, kinds.get(sample.pool))
            for sample, want, (target, notes) in zip(news, wants, bound, strict=True)
        ]

    def snapshot(self) -> dict[str, Memory]:
        """A copy of all that the scaler remembers."""
        return copy.deepcopy(self.memory)

    def _of(self, pool: str) -> PoolSettings:
        return self.settings.get(pool) or PoolSettings(self.bounds)

    def _shared(self, samples: Sequence[PoolSample], targets: Sequence[int]) -> Mapping[str, Mapping[str, int]]:
        """pool -> device kind -> replicas, for the pools that a budget or a choice of kinds touches."""
        several = any(len(self._of(s.pool).kinds) > 1 for s in samples)
        units = sum(t * self._of(s.pool).kinds[0].units for s, t in zip(samples, targets, strict=True))
        if not several and (self.budget is None or units <= self.budget):
            return {}
        needs = [self._need(s, target) for s, target in zip(samples, targets, strict=True)]
        if several:
            unlimited = sum(n.wanted * max(k.units for k in n.kinds) * 4 + 4 for n in needs)
            return by_integer_program(needs, unlimited if self.budget is None else self.budget, self.redeploy_cost)
        given = by_marginal_gain(needs, self.budget or 0.0, self.move_gain)
        return {n.pool: {n.kinds[0].name: given[n.pool]} for n in needs}

    def _need(self, sample: PoolSample, target: int) -> PoolNeed:
        own = self._of(sample.pool)
        busy, now = _busy(sample, target)
        here: dict[str, int] = {}
        for view in sample.replicas:
            if view.stage != "draining":
                here[view.device] = here.get(view.device, 0) + 1
        several = len(own.kinds) > 1
        kinds = own.kinds if several else (replace(own.kinds[0], slots=sample.slots),)
        each = sample.slots if sample.replicas or not several else kinds[0].slots
        low = min(own.bounds.minimum, target)
        return PoolNeed(sample.pool, target, low, busy, kinds, here, own.weight, target * each, now)

    def _decide(
        self,
        sample: PoolSample,
        want: Want | None,
        target: int,
        notes: tuple[str, ...],
        kinds: Mapping[str, int] | None,
    ) -> Scale:
        several = len(self._of(sample.pool).kinds) > 1
        if kinds is not None and (given := sum(kinds.values())) != target:
            mixed = " and ".join(f"{count} {name}" for name, count in kinds.items() if count) or "none"
            notes = (*notes, f"{target} asked of the budget, {mixed if several else given} given")
            target = given
        scale = plan(sample, target, kinds if several else None)
        return replace(scale, receipt=self._receipt(sample, want, target, notes)) if self.with_receipts else scale

    def _receipt(self, sample: PoolSample, want: Want | None, target: int, notes: tuple[str, ...]) -> ScaleReceipt:
        demand = sample.demand
        grid: tuple[float, ...] = ()
        edges: tuple[float, ...] = ()
        if demand is not None:
            edges = tuple(demand.edges_s.tolist())
            grid = tuple(demand.grid().values[demand.window_at(sample.cold_s)].tolist())
        return ScaleReceipt(
            f"{sample.pool}@{sample.observed_s:.13g}", sample.pool, sample.observed_s, self.name,
            None if want is None else want.replicas, target, sample.committed, "" if want is None else want.why,
            {} if want is None else want.terms, tuple(LEVELS.tolist()) if grid else (), grid, notes, edges,
        )  # fmt: skip


def _busy(sample: PoolSample, target: int) -> tuple[Array, Array | None]:
    """Busy slots at equally likely levels, (K,) each: when a replica ordered now is ready, and until then.

    A pool that nobody looked into needs all that it asks for.
    """
    demand = sample.demand
    if demand is None:
        return np.full(1, target * sample.slots), None
    j = demand.window_at(sample.cold_s)
    width, until = float(demand.widths_s[j]), float(demand.edges_s[j])
    behind = left_over(demand, ready_slots(sample, demand.edges_s), j) / width
    busy = behind + spread_out(demand.total[j] / width, demand.spread[j] / width**2, EVEN)
    return busy, spread_out(demand.total[:j].sum() / until, demand.spread[:j].sum() / until**2, EVEN) if j else None

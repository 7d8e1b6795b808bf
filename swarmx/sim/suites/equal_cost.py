"""What `tail_demand` costs where it is as good as a rival: read off its curve, with an interval over seeds.

Both curves are means over the same seeds. The interval comes from resampling seeds, so that rival and curve see the
same draws; reading the curve of every single seed would take the best of its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.sim.suites.outcome import Outcome

Array = NDArray[np.float64]
OURS, OURS_ARM = "tail_demand", "type"  # the curve; with other forecasts it is set against itself
RESAMPLES = 1000
QUALITIES: Mapping[str, Callable[[Outcome], float]] = {  # larger is better
    "p95": lambda o: -float(np.log(max(o.workflow[2], 1e-9))),
    "attainment": lambda o: o.call[4],
}


def family(row: str) -> str:
    """The policy of a row, whose name may carry its setting in brackets."""
    return row.partition("(")[0]


@dataclass(frozen=True, slots=True)
class Setting:
    """One policy at one setting of its knob: an outcome per seed, in the order of seeds."""

    policy: str
    outcomes: Sequence[Outcome]

    def costs(self) -> Array:
        """(S,) log replica-seconds, priced where the outcome knows prices."""
        return np.log([dict(o.extra).get("cost", o.replica_seconds) for o in self.outcomes])

    def qualities(self, name: str) -> Array:
        return np.array([QUALITIES[name](o) for o in self.outcomes])


def at_equal(rival: Setting, curve: Sequence[Setting], quality: str) -> dict[str, float]:
    """Our replica-seconds over the rival's where the curve reaches the rival's quality; 95 % interval as low and high.

    Empty where no setting of the curve is as good. `limit` 1 says that even the cheapest setting is better than the
    rival, so that the figures are upper limits. Without `high` the interval has no upper end.
    """
    costs = np.array([s.costs() for s in curve])  # (settings, S)
    goods = np.array([s.qualities(quality) for s in curve])
    own_cost, own_good = rival.costs(), rival.qualities(quality)
    everyone = np.arange(own_cost.size)
    found = _ratio(costs, goods, own_cost, own_good, everyone)
    if found is None:
        return {}
    out = {"ratio": found, "limit": float(goods.mean(axis=1)[costs.mean(axis=1).argmin()] > own_good.mean())}
    if everyone.size > 2:
        rng = np.random.default_rng(0)
        drawn = (rng.integers(everyone.size, size=everyone.size) for _ in range(RESAMPLES))
        ratios = [_ratio(costs, goods, own_cost, own_good, rows) for rows in drawn]
        # a resample in which the curve is nowhere as good counts as infinitely dear
        low, high = np.quantile([np.inf if r is None else r for r in ratios], [0.025, 0.975], method="nearest")
        out |= {name: float(x) for name, x in (("low", low), ("high", high)) if np.isfinite(x)}
    return out


def _ratio(costs: Array, goods: Array, own_cost: Array, own_good: Array, rows: NDArray[np.intp]) -> float | None:
    """The same for some of the seeds; log cost linear in quality between the curve's efficient settings."""
    cost, good = costs[:, rows].mean(axis=1), goods[:, rows].mean(axis=1)
    order = np.argsort(cost)
    cost, good = cost[order], good[order]
    efficient = good > np.concatenate(([-np.inf], np.maximum.accumulate(good)[:-1]))
    wanted = own_good[rows].mean()
    if good.max() < wanted:
        return None
    return float(np.exp(np.interp(wanted, good[efficient], cost[efficient]) - own_cost[rows].mean()))

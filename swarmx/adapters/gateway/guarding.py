"""The guard of every pool's schedulers on the metrics page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swarmx.adapters.gateway.metrics import Metrics, Rows
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.guarding import EXPECTED, FIGURES, expectations, guard_figures


def show_guard(metrics: Metrics, pools: Mapping[str, Pool]) -> None:
    """Register its figures, to be read whenever the page is."""
    metrics.add_gauge("swarmx_expectations", EXPECTED, ("pool", "policy", "tier"), _tiers(pools), counts=True)
    for name, about in FIGURES.items():
        metrics.add_gauge(f"swarmx_{name}", about, ("pool", "policy"), _figure(pools, name), name.endswith("turns"))


def _tiers(pools: Mapping[str, Pool]) -> Callable[[], Rows]:
    return lambda: [
        ((name, scheduler.name, tier), count)
        for name, pool in pools.items()
        for scheduler in pool.arms.schedulers()
        for tier, count in sorted(expectations(scheduler).items())
    ]


def _figure(pools: Mapping[str, Pool], figure: str) -> Callable[[], Rows]:
    return lambda: [
        ((name, scheduler.name), figures[figure])
        for name, pool in pools.items()
        for scheduler in pool.arms.schedulers()
        if figure in (figures := guard_figures(scheduler))
    ]

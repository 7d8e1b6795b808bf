"""The fairness accounts of every pool as Prometheus metrics: who got how much, how long they waited, against whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from swarmx.adapters.gateway.metrics import Metrics, Rows
from swarmx.adapters.gateway.pool import Pool
from swarmx.fairness import Account
from swarmx.scheduler import Scheduler

MAX_TENANTS = 1000  # tenants of a scheduler with rows of their own
LABELS = ("pool", "policy", "tenant")
Read = Callable[[Account], float]
# name -> what it is, how it is read off an account; all only grow
COUNTED: dict[str, tuple[str, Read]] = {
    "swarmx_tenant_arrived": ("Calls that asked to be served", lambda a: a.arrived),
    "swarmx_tenant_dispatched": ("Starts of calls on a replica", lambda a: a.dispatched),
    "swarmx_tenant_rejected": ("Calls refused, or given up", lambda a: a.rejected),
    "swarmx_tenant_interrupted": ("Calls taken off their replica", lambda a: a.interrupted),
    "swarmx_tenant_served_tokens": ("Prompt and output tokens of calls that ended", lambda a: a.tokens),
    "swarmx_tenant_wait_seconds": ("Sum of waits before a start", lambda a: a.wait_s),
    "swarmx_tenant_turnaround_seconds": ("Sum of times from arrival to end", lambda a: a.turnaround_s),
}


def show_accounts(metrics: Metrics, pools: Mapping[str, Pool]) -> None:
    """Register them, to be read whenever the page is."""
    for name, (about, read) in COUNTED.items():
        metrics.add_gauge(name, about, LABELS, _rows(pools, read), counts=True)
    metrics.add_gauge(
        "swarmx_tenant_share_over_weight", "Share of tokens over share of weights; 1 is fair", LABELS,
        lambda: (((pool, s.name, t), x) for pool, s in _schedulers(pools) for t, x in _shares(s)),
    )  # fmt: skip
    metrics.add_gauge(
        "swarmx_tenant_worst_delay_seconds", "Furthest behind ideal fair sharing so far", LABELS,
        lambda: (
            ((pool, s.name, t), x)
            for pool, s in _schedulers(pools)
            for t, x in islice(s.observers.sharing.worst_s.items(), MAX_TENANTS)
        ),
    )  # fmt: skip
    metrics.add_gauge(
        "swarmx_pool_jain", "Jain's index of tokens per weight over the pool's tenants", ("pool", "policy"),
        lambda: (
            ((pool, s.name), s.observers.ledger.jain(s.observers.sharing.weights)) for pool, s in _schedulers(pools)
        ),
    )  # fmt: skip


def _schedulers(pools: Mapping[str, Pool]) -> Iterator[tuple[str, Scheduler]]:
    return ((name, scheduler) for name, pool in pools.items() for scheduler in pool.arms.schedulers())


def _rows(pools: Mapping[str, Pool], read: Read) -> Callable[[], Rows]:
    def rows() -> Rows:
        for pool, scheduler in _schedulers(pools):
            for tenant, account in islice(scheduler.observers.ledger.accounts().items(), MAX_TENANTS):
                yield (pool, scheduler.name, tenant), read(account)

    return rows


def _shares(scheduler: Scheduler) -> Iterator[tuple[str, float]]:
    return islice(scheduler.observers.ledger.shares(scheduler.observers.sharing.weights).items(), MAX_TENANTS)

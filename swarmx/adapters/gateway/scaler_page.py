"""A pool as the external scaler asks for it: the page that an endpoint picker calls /state."""

from __future__ import annotations

from typing import Any

from swarmx.adapters.gateway.pool import Pool


def scaler_page(pool: Pool, owns_queue: bool) -> dict[str, Any]:
    """Counts and replicas of a pool, and what live workflows of all pools will still ask of each model.

    owns_queue : whether this gateway queues the pool's calls now; with peers only one of them does
    """
    now = pool.clock.now()
    rows = [
        {
            "endpoint": r.id,
            "device": r.settings.device,
            "slots": r.slots(pool.upstream, now),
            "speed": r.settings.speed,
            "running": r.observed.running,
            "waiting": r.observed.waiting,
            "ours": r.in_flight,
            "draining": r.draining,
            "out": not r.usable(now),
        }
        for r in pool.replicas.values()
    ]
    service_s = max((s.mean_service_s for s in pool.arms.schedulers()), default=0.0)
    return {
        "model": pool.name,
        "owns_queue": owns_queue,
        "synced": True,
        "observed_s": now,
        "held": pool.waiting_calls,
        "in_flight": len(pool.tickets) - pool.waiting_calls,
        "arrived": pool.arrived,
        "ended": pool.over,
        "unserved": 0,  # calls wait here until there is a replica
        "service_s": service_s or None,
        "endpoints": rows,
        "demand": None if pool.live is None else pool.live.page(now),
    }

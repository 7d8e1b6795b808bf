"""From the /state pages of a pool's pickers to the sample that the scaler takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from swarmx.scaling.demand import PoolDemand
from swarmx.scaling.samples import PoolSample, ReplicaView

Page = Mapping[str, Any]


def sample_of(
    pool: str,
    pages: Sequence[Page],
    now: float,
    cold_s: float,
    unserved_before: float = 0.0,
    ordered: int | None = None,
    demand: PoolDemand | None = None,
) -> PoolSample:
    """pages : of the pickers that answered, at least one; unserved_before : their `unserved` at the last look

    ordered : replicas that the workload is to have; those beyond the endpoints are starting
    demand : of live workflows, where somebody publishes it

    Counts of calls are added up. Endpoints are those of the picker that owns the queue, else of the first. Requests
    for which there was no endpoint count as waiting: they are what asks for the first replica.
    """
    rows = _rows(next((p for p in pages if p.get("owns_queue")), pages[0]))
    views = tuple(map(_view, rows))
    starting = max(0, (ordered or 0) - len(views))
    slots = views[0].slots if views else 1
    views += tuple(ReplicaView(f"starting-{i}", "starting", slots=slots, ready_in_s=cold_s) for i in range(starting))
    refused = max(0.0, unserved_of(pages) - unserved_before)
    queued = sum(_number(row, "waiting") for row in rows)
    services = [_number(p, "service_s") for p in pages]
    return PoolSample(
        pool=pool,
        observed_s=now,
        replicas=views,
        waiting=sum(_number(p, "held") for p in pages) + queued + refused,
        running=float(sum(min(v.in_flight, v.slots) for v in views)),
        arrived=sum(_number(p, "arrived") for p in pages),
        finished=sum(_number(p, "ended") for p in pages),
        service_s=max(services) or None,
        cold_s=cold_s,
        demand=demand,
    )


def unserved_of(pages: Sequence[Page]) -> float:
    """Requests so far for which no endpoint was there."""
    return sum(_number(p, "unserved") for p in pages)


def _rows(page: Page) -> list[Page]:
    rows = page.get("endpoints")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _view(row: Page) -> ReplicaView:
    slots = max(1, int(_number(row, "slots")))
    return ReplicaView(
        id=str(row.get("endpoint")),
        stage="draining" if row.get("draining") else "ready",
        in_flight=int(max(_number(row, "ours"), _number(row, "running"))),
        slots=slots,
        speed=_number(row, "speed") or 1.0,
        device=str(row.get("device") or "default"),
    )


def _number(row: Page, name: str) -> float:
    value = row.get(name)
    try:
        number = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:  # an integer of hundreds of digits
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0

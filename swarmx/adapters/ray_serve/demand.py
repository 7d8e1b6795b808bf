"""What the replicas of a deployment say of their calls, and the sample that the scaler makes of it.

A replica counts with `CallCounts` and hands the totals out through `record_autoscaling_stats`; Serve carries them to
its controller, where a policy's `Deployment` adds them up. Totals of a replica that left stay in the sum, so that no
rate jumps when replicas come and go. Nothing here imports Ray: an `AutoscalingContext` is read by its attributes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from swarmx.adapters.ray_serve.totals import Totals
from swarmx.scaling.samples import PoolSample, ReplicaView, Stage

TOTALS = ("swarmx_arrived", "swarmx_ended", "swarmx_service_s")
GAUGES = ("swarmx_running", "swarmx_waiting", "swarmx_slots", "swarmx_speed")
FEWEST_ENDED = 5  # calls before a recent mean service time is believed instead of the one of all calls


@dataclass(slots=True)
class CallCounts:
    """Calls of one replica.

    slots : calls that its engine runs at once, 0 where only the deployment's configuration says so
    speed : relative, 1 = the deployment's mean
    """

    slots: int = 1
    speed: float = 1.0
    total: int = 0
    done: int = 0
    service_s: float = 0.0
    running: int = 0
    waiting: int = 0

    def arrived(self) -> None:
        """The replica accepted a call; it waits for a slot."""
        self.total += 1
        self.waiting += 1

    def began(self) -> None:
        """A waiting call holds a slot now."""
        self.waiting -= 1
        self.running += 1

    def ended(self, service_s: float | None) -> None:
        """A call is over, in any way, after so many seconds in a slot; None when it never held one."""
        if service_s is None:
            self.waiting -= 1
            return
        self.running -= 1
        self.done += 1
        self.service_s += service_s

    def stats(self) -> dict[str, float]:
        """What `record_autoscaling_stats` is to return."""
        values = (self.total, self.done, self.service_s, self.running, self.waiting, self.slots, self.speed)
        return dict(zip((*TOTALS, *GAUGES), map(float, values), strict=True))


@dataclass(slots=True)
class Deployment:
    """Memory of one deployment's counters, in the controller.

    cold_s : from ordering a replica until it serves; recent_s : window of the mean service time
    stale_s : a replica whose last report is older is taken as silent; when all are, only Serve's own counts are used
    """

    name: str
    cold_s: float = 60.0
    recent_s: float = 120.0
    stale_s: float = 60.0
    totals: Totals = field(default_factory=lambda: Totals(len(TOTALS)))
    _past: deque[tuple[float, float, float]] = field(default_factory=deque)
    _most_arrived: float = 0.0
    _ordered_s: dict[int, float] = field(default_factory=dict)

    def sample(self, ctx: Any, now: float) -> PoolSample:
        """The scaler's view of the deployment; remembers the totals. ctx : Serve's AutoscalingContext"""
        ids = [replica.unique_id for replica in ctx.running_replicas]
        reports = self._reports(ctx, now)
        self.totals.add(ids, {id_: report[: len(TOTALS)] for id_, report in reports.items()})
        arrived, ended, service_s = self.totals.sums
        gauges = {id_: report[len(TOTALS) :] for id_, report in reports.items()}
        slots = _mean([g[2] for g in gauges.values() if g[2] > 0]) or _slots_of(ctx)
        queued = _number(ctx.total_queued_requests)
        held = sum(g[0] + g[1] for g in gauges.values()) if gauges else _number(ctx.total_running_requests)
        room = sum((gauges[id_][2] if id_ in gauges else 0.0) or slots for id_ in ids)
        running = min(held, room)
        self._most_arrived = max(self._most_arrived, arrived + queued)
        return PoolSample(
            pool=self.name,
            observed_s=now,
            replicas=self._views(ids, gauges, ctx.target_num_replicas, slots, now),
            waiting=held - running + queued,
            running=running,
            arrived=self._most_arrived if reports else None,
            finished=ended if reports else None,
            service_s=self._mean_service(now, ended, service_s),
            cold_s=self.cold_s,
        )

    def _reports(self, ctx: Any, now: float) -> dict[str, tuple[float, ...]]:
        """Replica -> its latest totals and gauges, of replicas that have reported all of them lately."""
        raw = ctx.raw_metrics or {}
        rows: dict[str, tuple[float, ...]] = {}
        for replica, series in raw.get(TOTALS[0], {}).items():
            if not series or now - series[-1].timestamp > self.stale_s:
                continue
            latest = [raw.get(name, {}).get(replica) for name in (*TOTALS, *GAUGES)]
            if all(latest):
                rows[replica.unique_id] = tuple(_number(points[-1].value) for points in latest if points)
        return rows

    def _mean_service(self, now: float, ended: float, service_s: float) -> float | None:
        """Mean seconds in a slot of the calls that ended lately; of all while these are few; None before the first."""
        self._past.append((now, ended, service_s))
        while len(self._past) > 2 and self._past[1][0] <= now - self.recent_s:
            self._past.popleft()
        _, ended_then, service_then = self._past[0]
        if ended - ended_then >= FEWEST_ENDED:
            return (service_s - service_then) / (ended - ended_then)
        return service_s / ended if ended else None

    def _views(
        self, ids: list[str], gauges: dict[str, tuple[float, ...]], target: int, slots: float, now: float
    ) -> tuple[ReplicaView, ...]:
        """Ready replicas, those ordered and not there yet, and those above the target, which Serve is stopping."""
        views = []
        for place, id_ in enumerate(ids):
            running, waiting, own, speed = gauges.get(id_, (0.0, 0.0, slots, 1.0))
            stage: Stage = "ready" if place < target else "draining"
            views.append(ReplicaView(id_, stage, int(running + waiting), max(round(own or slots), 1), speed or 1.0))
        missing = range(len(ids), target)
        self._ordered_s = {place: self._ordered_s.get(place, now) for place in missing}
        for place, since in self._ordered_s.items():
            ready_in_s = max(self.cold_s - (now - since), 0.0)
            views.append(
                ReplicaView(f"starting-{place}", "starting", slots=max(round(slots), 1), ready_in_s=ready_in_s)
            )
        return tuple(views)


def _slots_of(ctx: Any) -> float:
    """Without a replica's word, the calls per replica that the deployment is configured for."""
    return max(_number(getattr(ctx.config, "target_ongoing_requests", None)), 1.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _number(value: Any) -> float:
    ok = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(value) if ok else 0.0

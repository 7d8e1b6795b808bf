"""Tenants whose calls wait and who have got no start for long: a giant workflow must not shut them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from swarmx.waiting import Waiting


@dataclass(slots=True)
class _Tenant:
    """since_s : its last start, or when it began to wait after that"""

    since_s: float
    calls: dict[str, Waiting] = field(default_factory=dict)


class ShutOut:
    """Who waits since when, by tenant. O(log tenants) per event, and O(calls of a tenant) when it is overdue."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._heap: list[tuple[float, str]] = []

    def entered(self, waiting: Waiting, now: float) -> None:
        name = waiting.call.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(now)
            self._push(name, now)
        tenant.calls[waiting.call.id] = waiting

    def left(self, waiting: Waiting) -> None:
        """The call waits no more, and has not been started."""
        tenant = self._tenants.get(waiting.call.tenant)
        if tenant is not None:
            tenant.calls.pop(waiting.call.id, None)
            if not tenant.calls:
                del self._tenants[waiting.call.tenant]

    def started(self, waiting: Waiting, now: float) -> None:
        self.left(waiting)
        name = waiting.call.tenant
        if name in self._tenants:
            self._tenants[name].since_s = now
            self._push(name, now)

    def overdue(self, since_s: float) -> list[Waiting]:
        """The first call in order of each tenant without a start since then, longest without one first."""
        found: list[tuple[float, str]] = []
        while self._heap and self._heap[0][0] <= since_s:
            entry = heappop(self._heap)
            if entry not in found and self._is_true(entry):
                found.append(entry)
        for entry in found:
            heappush(self._heap, entry)
        firsts = []
        for _, name in found:
            offered = [w for w in self._tenants[name].calls.values() if w.order_key < inf]
            if offered:
                firsts.append(min(offered, key=lambda w: (w.level, w.order_key, w.call.arrival_s, w.call.id)))
        return firsts

    def _push(self, name: str, since_s: float) -> None:
        heappush(self._heap, (since_s, name))
        if len(self._heap) > 4 * len(self._tenants) + 64:
            self._heap = [(tenant.since_s, name) for name, tenant in self._tenants.items()]
            heapify(self._heap)

    def _is_true(self, entry: tuple[float, str]) -> bool:
        tenant = self._tenants.get(entry[1])
        return tenant is not None and tenant.since_s == entry[0]

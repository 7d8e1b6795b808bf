"""The starvation tier: which waiting calls go before all others because they have waited, or been overtaken, enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from swarmx.ordering.shut_out import ShutOut
from swarmx.waiting import Waiting, WaitingQueue

NO_HOLD = (inf, inf, inf)


@dataclass(frozen=True, slots=True)
class Aging:
    """When a call is due. It keeps its class and key; the tier stands before every class.

    overtakes : calls with larger keys that may start before it
    hold_services, hold_s : it may wait so many mean service times, and so many seconds by class (high, normal, low);
        the smaller counts
    share : of all starts, those that the tier may take ahead of others that could start; 1: due calls always go first
    tenant_services : a tenant with calls waiting goes so many mean service times without a start; then the first of its
        calls goes before all others

    Bound, for calls that some free replica can take: when a call comes due while D others are due already, it is at
    latest the (D + 1)-th start after that with share 1, because the tier is served in the order of coming due and
    nothing else is looked at before it. With a smaller share at least every ceil(1 / share)-th start is the tier's, so
    it is at latest start number ceil(1 / share) * (D + 1). A share below 1 keeps classes apart in lasting overload,
    where otherwise all calls come due and the order decays to first come first served.

    Bound, for tenants, however many calls of others are older: a tenant with calls waiting that some free replica can
    take gets its next start at latest as the T-th after tenant_services mean service times without one, T tenants being
    in that state, because the tier begins with one call of each, longest without a start first. A call that is due by
    its own age is passed by at most one call of each other tenant in that time.
    """

    overtakes: int = 64
    hold_services: float = 30.0
    hold_s: tuple[float, float, float] = NO_HOLD
    share: float = 1.0
    tenant_services: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], got {self.share}")
        if min(self.overtakes, self.hold_services, self.tenant_services, *self.hold_s) < 0:
            raise ValueError(f"overtakes and times of holding must not be negative, got {self}")

    def split(
        self, queue: WaitingQueue, shut_out: ShutOut, mean_service_s: float, now: float
    ) -> tuple[list[Waiting], list[Waiting]]:
        """(due calls that go first, due calls that go last), each oldest due first; the rest stand between them."""
        before = now - self.tenant_services * mean_service_s if mean_service_s > 0 else -inf
        first_of_all = shut_out.overdue(before)
        for waiting in first_of_all:
            queue.make_due(waiting)
            waiting.due_s = now if waiting.due_s is None else waiting.due_s
        relative = self.hold_services * mean_service_s if mean_service_s > 0 else inf
        places = queue.mark_due(self.overtakes, [now - min(relative, hold) for hold in self.hold_s])
        if not places and not first_of_all:
            return [], []
        due = [queue.slice(place, 1)[0] for place in places]
        for waiting in due:
            if waiting.due_s is None:  # since its hold ended, which may be before anybody looked
                waiting.due_s = min(now, waiting.since_s + min(relative, self.hold_s[waiting.level]))
        due.sort(key=lambda w: (w.due_s, w.key))
        if first_of_all:
            taken = set(map(id, first_of_all))
            due = [w for w in due if id(w) not in taken]
        if self.share >= 1:
            return first_of_all + due, []
        first = int(queue.starts_since_due + 1 >= 1 / self.share)
        return first_of_all + due[:first], due[first:]


def aging_of(aging: Aging | None, order: object) -> Aging | None:
    """The configured tier, with the holds that the discipline itself asks for."""
    own: tuple[float, float, float] | None = getattr(order, "hold_s", None)
    if own is None:
        return aging
    base = Aging(overtakes=2**62, hold_services=inf, tenant_services=inf) if aging is None else aging
    high, normal, low = (min(a, b) for a, b in zip(base.hold_s, own, strict=True))
    return replace(base, hold_s=(high, normal, low))

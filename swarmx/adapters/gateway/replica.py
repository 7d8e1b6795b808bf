"""One model server as the gateway knows it: settings, what its metrics say, and whether it can be trusted now."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from swarmx.adapters.gateway.settings import UpstreamSettings
from swarmx.adapters.settings import ReplicaSettings
from swarmx.errors import BadInput
from swarmx.types import ReplicaState

UNKNOWN_SLOTS = 64  # until the metrics have shown a queue
UNKNOWN_CONTEXT = 1_000_000
UNKNOWN_KV = 10_000_000


@dataclass(slots=True)
class Observed:
    """What the server said last; None where it did not. others : its calls that this gateway did not send."""

    at_s: float | None = None
    running: int = 0
    waiting: int = 0
    others: int = 0
    kv_share: float = 0.0
    kv_capacity_tokens: int | None = None
    context_tokens: int | None = None
    slots: int | None = None


@dataclass(slots=True)
class Replica:
    """State that changes; `state()` is what the scheduler sees of it.

    healthy : probes answer; failed_calls : in a row; open_until_s : the breaker lets nothing through before that
    ready_s : since when it is healthy, for the slow start; leaving : it is removed once nothing runs there
    in_flight : calls that this gateway has there; tokens_per_event : learned from streams whose usage was told
    """

    settings: ReplicaSettings
    model: str
    healthy: bool = True
    probed: bool = False
    failed_probes: int = 0
    failed_calls: int = 0
    ejections: int = 0
    open_until_s: float = 0.0
    draining: bool = False
    leaving: bool = False
    ready_s: float = float("-inf")
    source: str = "config"
    observed: Observed = field(default_factory=Observed)
    in_flight: int = 0
    tokens_per_event: float = 1.0

    @property
    def id(self) -> str:
        return self.settings.name

    def authorization(self) -> dict[str, str]:
        """The header with the server's own key, if it has one. Raises BadInput when the variable is not set."""
        name = self.settings.api_key_env
        if name is None:
            return {}
        if not (key := os.environ.get(name)):
            raise BadInput(f"replica {self.id}: environment variable {name} is not set; it should hold the API key")
        return {"Authorization": f"Bearer {key}"}

    # ---- health ---------------------------------------------------------------------------------------------------

    def probe_answered(self, now: float) -> bool:
        """A health probe was answered; True when that changes whether it is used."""
        changed = not self.healthy or not self.probed
        if not self.healthy:
            self.ready_s, self.failed_calls, self.open_until_s = now, 0, 0.0
        self.healthy, self.probed, self.failed_probes = True, True, 0
        return changed

    def probe_failed(self, after: int) -> bool:
        """A health probe failed; True when that changes whether it is used."""
        self.failed_probes += 1
        changed = self.healthy and self.failed_probes >= after
        if changed:
            self.healthy = False
        return changed

    def call_answered(self) -> None:
        self.failed_calls = self.ejections = 0

    def call_failed(self, upstream: UpstreamSettings, now: float, may_open: bool = True) -> bool:
        """Count a call towards the breaker; True when the breaker opens."""
        self.failed_calls += 1
        if self.failed_calls < upstream.eject_after or self.open_until_s > now or not may_open:
            return False
        self.open_until_s = now + min(upstream.eject_s * 2**self.ejections, upstream.eject_most_s)
        self.ejections += 1
        self.failed_calls = upstream.eject_after - 1  # half open: the next failure opens it again
        return True

    def forgive(self, opened: bool) -> None:
        """Take back the count of a call whose own fault it was. opened : that count had opened the breaker"""
        if opened:
            self.open_until_s, self.ejections = 0.0, max(0, self.ejections - 1)
        else:
            self.failed_calls = max(0, self.failed_calls - 1)

    def usable(self, now: float) -> bool:
        return self.healthy and not self.draining and self.open_until_s <= now

    # ---- what the scheduler sees ----------------------------------------------------------------------------------

    def slots(self, upstream: UpstreamSettings, now: float) -> int:
        """Calls to send at once: as set or as seen, fewer while it warms up."""
        slots = self.settings.slots or self.observed.slots or UNKNOWN_SLOTS
        if upstream.slow_start_s > 0 and now < self.ready_s + upstream.slow_start_s:
            return max(1, int(slots * (now - self.ready_s) / upstream.slow_start_s))
        return slots

    def state(self, upstream: UpstreamSettings, now: float) -> ReplicaState:
        seen = self.observed
        capacity = self.settings.kv_capacity_tokens or seen.kv_capacity_tokens or UNKNOWN_KV
        return ReplicaState(
            id=self.id,
            model=self.model,
            device=self.settings.device,
            slots=self.slots(upstream, now),
            context_tokens=self.settings.context_tokens or seen.context_tokens or UNKNOWN_CONTEXT,
            kv_capacity_tokens=capacity,
            running=self.in_flight + seen.others,
            kv_tokens=int(seen.kv_share * capacity),
            draining=self.draining,
            breaker_open=not self.healthy or self.open_until_s > now,
            speed=self.settings.speed,
            reported_s=None if seen.at_s is None else now,
        )

"""Who is let in: caps on what waits, token buckets, predicted misses, and calls that make no progress.

Every rejection says why and after how long a retry has a chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np

from swarmx import kernel
from swarmx.state import ClusterState
from swarmx.types import PRIORITIES, Call, Priority
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `per_s` tokens (prompt + expected output) a second, up to `burst` at once."""

    per_s: float
    burst: float

    def __post_init__(self) -> None:
        if not (self.per_s > 0 and self.burst > 0):
            raise ValueError(f"a rate needs per_s > 0 and burst > 0, got {self.per_s} and {self.burst}")


@dataclass(frozen=True, slots=True)
class Admission:
    """What may wait, and for how long.

    class_caps, tenant_cap : most waiting calls of a class, and of any one tenant
    rates : tenant -> token bucket; tenants without have no limit
    shed : reject a call with a deadline (or an slo_s of its class) that it is predicted to miss by more than
        `slack` * the time it has
    slo_s : class -> seconds from arrival, for calls without deadline
    stall_s : a running call without a sign of progress for so long leaves its replica, is sent again `retries` times,
        then rejected; infinite: never. Set it above the longest first token and, without progress reports, above the
        longest call
    """

    class_caps: Mapping[Priority, int] = field(default_factory=dict)
    tenant_cap: int | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict)
    shed: bool = False
    slack: float = 0.0
    slo_s: Mapping[Priority, float] = field(default_factory=dict)
    stall_s: float = inf
    retries: int = 1

    def __post_init__(self) -> None:
        caps = [*self.class_caps.values(), *([] if self.tenant_cap is None else [self.tenant_cap])]
        if any(cap < 0 for cap in caps) or self.retries < 0:
            raise ValueError(f"caps must not be negative, nor retries, got {caps} and {self.retries}")
        if not self.stall_s > 0 or self.slack < 0 or any(not s > 0 for s in self.slo_s.values()):
            raise ValueError(f"stall_s and slo_s must be positive, slack not negative, got {self}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """retry_after_s : when the same call would be let in if nothing else changed but time"""

    reason: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the pool is expected to do.

    tokens_per_s : output tokens of all slots together; token_s : seconds per output token of one call there
    calls_per_s : ends a second; running_tokens : still to be produced by what runs; free : whether a slot is free now
    """

    tokens_per_s: float
    token_s: float
    calls_per_s: float
    running_tokens: float
    free: bool


def outlook_of(cluster: ClusterState, mean_tokens: float) -> Outlook:
    """From the book and the service model; the cluster has been refreshed. mean_tokens : of a call's output."""
    table = cluster.replicas[:, cluster.replicas[kernel.USABLE] > 0]
    if not cluster.is_fitted or not table.shape[1]:
        return Outlook(1e-9, 1.0, 1e-9, 0.0, False)
    slots, kv = table[kernel.SLOTS], np.minimum(table[kernel.KV], table[kernel.KV_CAPACITY])
    tau = table[kernel.A] + table[kernel.B] * slots + table[kernel.C] * kv
    rate = float(np.sum(slots / tau))
    free = bool(np.any(table[kernel.N] < slots))
    running = float(np.sum(table[kernel.REMAINING]))
    return Outlook(rate, float(np.mean(tau)), rate / max(mean_tokens, 1.0), running, free)


class Gate:
    """Applies an `Admission`; knows what waits, the buckets, and when each running call last moved.

    is_open : nobody is ever refused; then what waits is not counted
    """

    def __init__(self, rules: Admission) -> None:
        self.rules = rules
        self.is_open = not (rules.class_caps or rules.rates or rules.shed) and rules.tenant_cap is None
        self._waiting: dict[str, tuple[int, str, float]] = {}  # call -> class, tenant, tokens
        self._calls = [0, 0, 0]
        self._tokens = [0.0, 0.0, 0.0]
        self._tenants: dict[str, int] = {}
        self._buckets: dict[str, tuple[float, float]] = {}  # tenant -> tokens there, as of when
        self._alive: dict[str, tuple[float, float]] = {}  # running call -> tokens, last time they grew

    def judge(self, waiting: Waiting, outlook: Outlook, now: float) -> Refusal | None:
        """Why the call is not let in; None lets it in. A token bucket is charged only then."""
        call = waiting.call
        refusal = self._full(call, waiting.level, outlook) or self._misses(waiting, outlook, now)
        return refusal or self._limited(call.tenant, call.prompt_tokens + waiting.lengths.mean, now)

    def entered(self, waiting: Waiting) -> None:
        """The call waits."""
        if self.is_open:
            return
        entry = waiting.level, waiting.call.tenant, waiting.lengths.mean
        self._waiting[waiting.call.id] = entry
        self._count(entry, 1)

    def left(self, call_id: str) -> None:
        """It does not wait any more."""
        entry = self._waiting.pop(call_id, None)
        if entry is not None:
            self._count(entry, -1)

    def started(self, call_id: str, now: float) -> None:
        self.left(call_id)
        if self.rules.stall_s < inf:
            self._alive[call_id] = 0.0, now

    def progressed(self, call_id: str, tokens: float, now: float) -> None:
        """Only more tokens than before are progress."""
        before = self._alive.get(call_id)
        if before is not None and tokens > before[0]:
            self._alive[call_id] = tokens, now

    def stopped(self, call_id: str) -> None:
        self._alive.pop(call_id, None)

    def stalled(self, now: float) -> list[str]:
        """Running calls without progress for `stall_s`, longest silent first."""
        found = [(since, call_id) for call_id, (_, since) in self._alive.items() if now - since >= self.rules.stall_s]
        return [call_id for _, call_id in sorted(found)]

    def _count(self, entry: tuple[int, str, float], sign: int) -> None:
        level, tenant, tokens = entry
        self._calls[level] += sign
        self._tokens[level] = self._tokens[level] + sign * tokens if self._calls[level] else 0.0
        left = self._tenants.get(tenant, 0) + sign
        if left:
            self._tenants[tenant] = left
        else:
            del self._tenants[tenant]

    def _full(self, call: Call, level: int, outlook: Outlook) -> Refusal | None:
        name = PRIORITIES[level]
        cap = self.rules.class_caps.get(name)
        for what, count, limit in (
            (f"class {name}", self._calls[level], cap),
            (f"tenant {call.tenant!r}", self._tenants.get(call.tenant, 0), self.rules.tenant_cap),
        ):
            if limit is not None and count >= limit:
                wait_s = (count - limit + 1) / max(outlook.calls_per_s, 1e-9)
                return Refusal(f"{count} calls of {what} wait already; the limit is {limit}", wait_s)
        return None

    def wait_s(self, level: int, outlook: Outlook) -> float:
        """Expected wait of a call of that class that arrives now: waiting work of its class and better ones first."""
        if outlook.free and not sum(self._calls[: level + 1]):
            return 0.0
        return (sum(self._tokens[: level + 1]) + outlook.running_tokens / 2) / max(outlook.tokens_per_s, 1e-9)

    def _misses(self, waiting: Waiting, outlook: Outlook, now: float) -> Refusal | None:
        call = waiting.call
        slo_s = self.rules.slo_s.get(PRIORITIES[waiting.level], inf)
        has_s = (now + slo_s if call.deadline_s is None else call.deadline_s) - now
        if not self.rules.shed or has_s == inf:
            return None
        own_s = waiting.lengths.mean * outlook.token_s
        over_s = self.wait_s(waiting.level, outlook) + own_s - has_s * (1 + self.rules.slack)
        if over_s <= 0:
            return None
        return Refusal(f"predicted to end {over_s + has_s * self.rules.slack:.3g} s after its deadline", over_s)

    def _limited(self, tenant: str, tokens: float, now: float) -> Refusal | None:
        rate = self.rules.rates.get(tenant)
        if rate is None:
            return None
        there, since = self._buckets.get(tenant, (rate.burst, now))
        there = min(rate.burst, there + (now - since) * rate.per_s)
        wanted = min(tokens, rate.burst)  # a call larger than the bucket passes when it is full
        if there < wanted:
            self._buckets[tenant] = there, now
            reason = f"tenant {tenant!r} is over its {rate.per_s:g} tokens a second"
            return Refusal(reason, (wanted - there) / rate.per_s)
        self._buckets[tenant] = there - tokens, now
        return None

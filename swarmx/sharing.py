"""Delay behind ideal fair sharing, kept as calls come, run and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TENANTS = 10_000  # whose worst delay is remembered; the first seen go first


@dataclass(slots=True)
class _Wait:
    """A time in which a tenant had calls waiting. virtual : tokens per weight at its begin; got : tokens since"""

    since_s: float
    virtual: float
    got: float = 0.0
    calls: int = 0


class Sharing:
    """How far each tenant was behind what ideal fair sharing would have given it while it had calls waiting.

    weights : tenant -> weight, others 1
    Under ideal sharing all tenants with calls inside are served at once, in proportion to their weights: while the
    pool serves x tokens, tenant i is owed x * w_i / (weights of all inside). Over a time T in which it had calls
    waiting, was owed E and got G, it is behind by T * (1 - G / E) seconds: the time that it would need, at its ideal
    rate, for what it has not got. Looked at whenever one of its calls starts, which is when it is furthest behind.
    Tokens are prompt tokens at a start and output tokens as they are reported.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict(weights or {})
        self.worst_s: dict[str, float] = {}
        self._tenant: dict[str, str] = {}  # call inside -> tenant
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, _Wait] = {}
        self._seen: dict[str, float] = {}  # call that runs -> output tokens counted
        self._weight = 0.0
        self._virtual = 0.0

    def entered(self, call_id: str, tenant: str, now: float) -> None:
        """A call waits from now on, for the first time or again."""
        if call_id not in self._tenant:
            self._tenant[call_id] = tenant
            self._inside[tenant] = self._inside.get(tenant, 0) + 1
            if self._inside[tenant] == 1:
                self._weight += self.weights.get(tenant, 1.0)
        wait = self._waiting.setdefault(tenant, _Wait(now, self._virtual))
        wait.calls += 1

    def started(self, call_id: str, prompt_tokens: float, now: float) -> None:
        tenant = self._tenant.get(call_id)
        if tenant is None:
            return
        self.worst_s[tenant] = max(self.worst_s.get(tenant, 0.0), self.behind_s(tenant, now))
        if len(self.worst_s) > MAX_TENANTS:  # callers may name as many as they like
            del self.worst_s[next(iter(self.worst_s))]
        self._stops_waiting(tenant)
        self._seen[call_id] = 0.0
        self._serve(tenant, prompt_tokens)

    def progressed(self, call_id: str, tokens: float) -> None:
        """Output tokens of the running attempt so far."""
        before = self._seen.get(call_id)
        if before is not None and tokens > before:
            self._seen[call_id] = tokens
            self._serve(self._tenant[call_id], tokens - before)

    def stopped(self, call_id: str, tokens: float) -> None:
        """The attempt is over; `over` or `entered` says what comes next."""
        self.progressed(call_id, tokens)
        self._seen.pop(call_id, None)

    def over(self, call_id: str, waited: bool) -> None:
        """The call is gone. waited : it had not been started"""
        tenant = self._tenant.pop(call_id, None)
        if tenant is None:
            return
        if waited:
            self._stops_waiting(tenant)
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
            self._weight = self._weight - self.weights.get(tenant, 1.0) if self._inside else 0.0

    def behind_s(self, tenant: str, now: float) -> float:
        """Seconds behind ideal sharing now; 0 for a tenant that is ahead or has nothing waiting."""
        wait = self._waiting.get(tenant)
        if wait is None:
            return 0.0
        owed = self.weights.get(tenant, 1.0) * (self._virtual - wait.virtual)
        return (now - wait.since_s) * max(1 - wait.got / owed, 0.0) if owed > 0 else 0.0

    def _serve(self, tenant: str, tokens: float) -> None:
        self._virtual += tokens / self._weight
        if tenant in self._waiting:
            self._waiting[tenant].got += tokens

    def _stops_waiting(self, tenant: str) -> None:
        wait = self._waiting[tenant]
        wait.calls -= 1
        if not wait.calls:
            del self._waiting[tenant]

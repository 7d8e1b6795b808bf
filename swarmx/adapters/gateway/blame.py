"""Whose fault it is when a server answers a call with an error: the server's or the call's.

A broken server fails calls that others can answer; a broken call fails on every server. A server's breaker counts the
first at once. When a second server fails the same call, neither is counted, until a third can answer it after all.
"""

from __future__ import annotations

from swarmx.adapters.gateway.errors import Failed
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.replica import Replica
from swarmx.adapters.gateway.ticket import Ticket


def attempt_failed(pool: Pool, ticket: Ticket, replica: Replica, failure: Failed) -> None:
    """Tell the replica's breaker, and the scheduler where that changes whom it may use."""
    now = pool.clock.now()
    if failure.reason in ("refused", "preempted", "moved"):  # it is full, or the scheduler wanted its place
        return
    if failure.reason == "connect" and replica.healthy:
        replica.healthy = False  # nothing listens: no need to wait for a probe
        pool.replica_lost(replica, "replica_lost")
        return
    opened_or_closed = (
        _said_error(pool, ticket, replica) if failure.reason == "status" else replica.call_failed(pool.upstream, now)
    )
    if opened_or_closed:
        pool.sync()


def attempt_answered(pool: Pool, ticket: Ticket, replica: Replica, status: int) -> None:
    """A whole answer came; one below 400 shows that the servers who had failed the call were to blame."""
    replica.call_answered()
    if status < 400 and len(ticket.blamed) > 1:
        now = pool.clock.now()
        if any([blamed.call_failed(pool.upstream, now) for blamed in ticket.blamed if blamed is not replica]):
            pool.sync()


def _said_error(pool: Pool, ticket: Ticket, replica: Replica) -> bool:
    """Count an error that the server answered. Returns True when a breaker opened or closed."""
    if any(replica is blamed for blamed in ticket.blamed):
        return False  # a call counts once for each server, however often it is tried there
    ticket.blamed.append(replica)
    if len(ticket.blamed) == 1:
        now = pool.clock.now()
        others = any(other is not replica and other.usable(now) for other in pool.replicas.values())
        ticket.opened = replica.call_failed(pool.upstream, now, may_open=others)  # one must be left who can acquit it
        return ticket.opened
    if len(ticket.blamed) == 2:
        ticket.blamed[0].forgive(ticket.opened)
        return ticket.opened
    return False

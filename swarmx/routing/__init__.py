"""Placement policies by name: what a call would cost on each replica.

A policy is a pure function of the call and the cluster (and of a random generator where it samples); the scheduler
takes the cheapest replica that may serve the call, breaks ties, and carries the choice out.
"""

from __future__ import annotations

from collections.abc import Callable

from swarmx.routing.completion import Completion
from swarmx.routing.composed import Composed
from swarmx.routing.counts import (
    LeastOutstanding,
    LeastOutstandingPerSpeed,
    PowerOfTwo,
    RandomReplica,
    RoundRobin,
)
from swarmx.routing.murakkab import Murakkab
from swarmx.routing.placement import Placement

PLACEMENTS: dict[str, Callable[..., Placement]] = {
    "random": RandomReplica,
    "round_robin": RoundRobin,
    "power_of_two": PowerOfTwo,
    "least_outstanding": LeastOutstanding,
    "least_outstanding_per_speed": LeastOutstandingPerSpeed,
    "murakkab": Murakkab,
    "completion": Completion,
    "composed": Composed,
}

__all__ = ["PLACEMENTS", "Placement"]

"""Placement policies by name: what a call would cost on each replica.

A policy is a pure function of the call and the cluster (and of a random generator where it samples); the scheduler
takes the cheapest replica that may serve the call, breaks ties, and carries the choice out.
"""

from __future__ import annotations

from collections.abc import Callable

from swarmx.routing.cache_aware import CacheAware
from swarmx.routing.completion import Completion
from swarmx.routing.composed import Composed
from swarmx.routing.counts import (
    LeastOutstanding,
    LeastOutstandingPerSpeed,
    PowerOfTwo,
    RandomReplica,
    RoundRobin,
)
from swarmx.routing.join_idle import JoinIdle
from swarmx.routing.least_kv_tokens import LeastKvTokens
from swarmx.routing.llmd_predicted import LlmdPredicted
from swarmx.routing.murakkab import Murakkab
from swarmx.routing.placement import Placement
from swarmx.routing.prefix_affinity import PrefixAffinity
from swarmx.routing.prequal import Prequal
from swarmx.routing.psc import PredictedServiceCost
from swarmx.routing.weighted_round_robin import WeightedRoundRobin

PLACEMENTS: dict[str, Callable[..., Placement]] = {
    "random": RandomReplica,
    "round_robin": RoundRobin,
    "weighted_round_robin": WeightedRoundRobin,
    "power_of_two": PowerOfTwo,
    "least_outstanding": LeastOutstanding,
    "least_outstanding_per_speed": LeastOutstandingPerSpeed,
    "least_kv_tokens": LeastKvTokens,
    "join_idle": JoinIdle,
    "prequal": Prequal,
    "cache_aware": CacheAware,
    "prefix_affinity": PrefixAffinity,
    "murakkab": Murakkab,
    "psc": PredictedServiceCost,
    "llmd_predicted": LlmdPredicted,
    "completion": Completion,
    "composed": Composed,
}

__all__ = ["PLACEMENTS", "Placement"]

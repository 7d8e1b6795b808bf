"""Whole schedulers by name: `swarmx policies` lists them, configs and evaluations name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarmx.combination import Combination
from swarmx.engine import EngineConstants, OnlineFit
from swarmx.errors import BadInput
from swarmx.late import WAIT_WEIGHT, LateWalk
from swarmx.migration import Stealing
from swarmx.options import combined
from swarmx.ordering import Aging, Fcfs, OldestWorkflow
from swarmx.ordering.gamma_boost import GammaBoost
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
from swarmx.routing.prefix_affinity import PrefixAffinity
from swarmx.routing.prequal import Prequal
from swarmx.routing.psc import PredictedServiceCost
from swarmx.routing.weighted_round_robin import WeightedRoundRobin
from swarmx.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Preset:
    """A named combination.

    needs : "nothing", "prediction" (some predictor arm) or "oracle" (true lengths, possible in simulation alone)
    """

    about: str
    parts: Callable[[], Combination]
    needs: str = "nothing"


def _counts(placement: Callable[[], Any]) -> Callable[[], Combination]:
    return lambda: Combination(placement(), Fcfs(), tier="pool_mean", learns=False)


def _late(work_weight: float | None) -> Callable[[], Combination]:
    return lambda: Combination(
        LeastOutstandingPerSpeed(), OldestWorkflow(work_weight), binding="late", late=LateWalk(), aging=Aging()
    )


PRESETS: dict[str, Preset] = {
    "random": Preset("any replica", _counts(RandomReplica)),
    "round_robin": Preset("replicas in turn", _counts(RoundRobin)),
    "weighted_round_robin": Preset("replicas in turn, in proportion to speed", _counts(WeightedRoundRobin)),
    "power_of_two": Preset("the emptier of two drawn replicas", _counts(PowerOfTwo)),
    "least_outstanding": Preset("fewest calls (join the shortest queue)", _counts(LeastOutstanding)),
    "least_outstanding_per_speed": Preset(
        "least (calls + 1) / configured speed (LED), the reference", _counts(LeastOutstandingPerSpeed)
    ),
    "least_kv_tokens": Preset("least KV tokens / configured speed", _counts(LeastKvTokens)),
    "join_idle": Preset("the fastest idle replica, else the emptier of two", _counts(JoinIdle)),
    "prequal": Preset(
        "probed requests in flight and latency, hot and cold replicas",
        lambda: Combination(Prequal(), Fcfs(), tier="pool_mean"),
    ),
    "cache_aware": Preset("longest cached prefix unless out of balance", _counts(CacheAware)),
    "prefix_affinity": Preset("prompt hashing with bounded load", _counts(PrefixAffinity)),
    "central_fcfs": Preset(
        "one queue, first come first served, the fastest free replica",
        lambda: Combination(LeastOutstandingPerSpeed(), Fcfs(), binding="late", tier="pool_mean", learns=False),
    ),
    "murakkab": Preset(
        "least backlog by mean service time per call type",
        lambda: Combination(Murakkab(), Fcfs(), tier="per_type"),
    ),
    "beyond_prediction": Preset(
        "one queue, head starts by the length distribution of the call type, no prediction",
        lambda: Combination(LeastOutstandingPerSpeed(), GammaBoost(), binding="late", tier="per_type"),
    ),
    "psc": Preset(
        "least backlog by a predicted mean per call", lambda: Combination(PredictedServiceCost(), Fcfs()), "prediction"
    ),
    "llmd_predicted": Preset(
        "TTFT and TPOT at one quantile, affinity gate", lambda: Combination(LlmdPredicted(), Fcfs()), "prediction"
    ),
    "least_expected": Preset(
        "least expected own finish, prompt-aware, selfish",
        lambda: Combination(Completion(harm_weight=0.0), Fcfs()),
        "prediction",
    ),
    "swarmx": Preset(
        "the paper's router: tail cost of the composed backlog",
        lambda: Combination(Composed(), Fcfs()),
        "prediction",
    ),
    "push": Preset(
        "immediate binding by own finish + harm to the running calls",
        lambda: Combination(Completion(wait_weight=WAIT_WEIGHT), Fcfs()),
        "prediction",
    ),
    "push_steal": Preset(
        "push, and calls that wait at a busy replica move to an idle one",
        lambda: Combination(Completion(wait_weight=WAIT_WEIGHT), Fcfs(), stealing=Stealing()),
        "prediction",
    ),
    "late": Preset(
        "look-ahead late binding, oldest workflow first (default where the queue is ours)",
        _late(None),
        "prediction",
    ),
    "clairvoyant": Preset(
        "push with the true lengths (simulation)",
        lambda: Combination(Completion(wait_weight=WAIT_WEIGHT), Fcfs()),
        "oracle",
    ),
    "late_clairvoyant": Preset("late with the true lengths (simulation)", _late(None), "oracle"),
}


def preset(name: str, seed: int = 0, engines: dict[str, EngineConstants] | None = None, **options: Any) -> Scheduler:
    """A scheduler of that name.

    engines : known constants per device kind; what is not given is learned from observed tokens
    options : what to have otherwise, as objects or as a configuration file spells them: see `swarmx.options`
    Raises BadInput for an unknown name or option.
    """
    if name not in PRESETS:
        raise BadInput(f"unknown policy {name!r}; choose one of {', '.join(PRESETS)}")
    parts = PRESETS[name].parts()
    if options:
        parts = combined(parts, options)
    return Scheduler(name, parts, OnlineFit(engines), seed)

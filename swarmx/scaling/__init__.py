"""Scaling policies by name: how many replicas a pool should have.

A policy is a pure function of a pool's sample and recent past; `bounded` applies every bound and delay once, `budget`
shares out what is short, `drain` turns a number into replicas. Each name comes with the bounds that belong to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from swarmx.errors import BadInput
from swarmx.scaling.bounded import Bounds, Memory, Rate, bounded
from swarmx.scaling.cilantro import Cilantro
from swarmx.scaling.clairvoyant import clairvoyant
from swarmx.scaling.decisions import Scale, ScaleReceipt, Want
from swarmx.scaling.fixed import Fixed
from swarmx.scaling.hpa import Hpa
from swarmx.scaling.keda_latency import KedaLatency
from swarmx.scaling.kpa import Kpa
from swarmx.scaling.murakkab import Murakkab
from swarmx.scaling.policy import ScalingPolicy
from swarmx.scaling.queue_length import QueueLength
from swarmx.scaling.samples import PoolSample, ReplicaView
from swarmx.scaling.swarmx import SwarmX
from swarmx.scaling.tail_demand import TailDemand
from swarmx.scaling.throughput_and_load import ThroughputAndLoad

PLAIN = Bounds()


@dataclass(frozen=True, slots=True)
class ScalingPreset:
    """A policy and the bounds it is meant to run in."""

    about: str
    policy: Callable[..., ScalingPolicy]
    bounds: Bounds = PLAIN


HPA_BOUNDS = Bounds(down_delay_s=300.0, up=Rate(4, 15.0, 1.0), down=Rate(1, 15.0, 1.0), consolidate=None)
KEDA_BOUNDS = Bounds(down_delay_s=0.0, up=Rate(4, 60.0, 1.0), down=Rate(1, 120.0), consolidate=None)

SCALERS: dict[str, ScalingPreset] = {
    "fixed": ScalingPreset("a fixed number", Fixed),
    "hpa": ScalingPreset("Kubernetes HPA on slot utilisation", Hpa, HPA_BOUNDS),
    "keda_latency": ScalingPreset("llm-d's KEDA law on P90 predicted latency over its limit", KedaLatency, KEDA_BOUNDS),
    "kpa": ScalingPreset("Knative: concurrency over a stable and a panic window", Kpa, Bounds(down_delay_s=0.0)),
    "queue_length": ScalingPreset("calls in the pool over slots", QueueLength, Bounds(consolidate=None)),
    "throughput_and_load": ScalingPreset(
        "Dynamo's two loops: a floor from the rate, single steps by latency",
        ThroughputAndLoad,
        Bounds(down_delay_s=30.0),
    ),
    "cilantro": ScalingPreset("the load that feedback shows a replica to bear", Cilantro),
    "murakkab": ScalingPreset("mean demand over mean capacity", Murakkab),
    "tail_demand": ScalingPreset(
        "a quantile of backlog, service, downstream calls and arrivals over the cold start (default)", TailDemand
    ),
    "swarmx": ScalingPreset("the paper's shape: tail cost of hypothetical actions on the demand grid", SwarmX),
    "clairvoyant": ScalingPreset("tail_demand with the future known (simulation)", clairvoyant),
}


def scaling_preset(name: str, bounds: Bounds | None = None, **options: Any) -> tuple[ScalingPolicy, Bounds]:
    """Policy and bounds of that name; options go to the policy. Raises BadInput for an unknown name or option."""
    if name not in SCALERS:
        raise BadInput(f"unknown scaling policy {name!r}; choose one of {', '.join(SCALERS)}")
    known = inspect.signature(SCALERS[name].policy).parameters
    if wrong := [option for option in options if option not in known]:
        raise BadInput(f"scaling policy {name!r} has no option {wrong[0]!r}; it has {', '.join(known) or 'none'}")
    try:
        policy = SCALERS[name].policy(**options)
    except (TypeError, ValueError) as problem:
        raise BadInput(f"scaling policy {name!r}: {problem}") from None
    return policy, SCALERS[name].bounds if bounds is None else bounds


def within(name: str, **limits: Any) -> Bounds:
    """The bounds of a name with some of them replaced."""
    return replace(SCALERS[name].bounds, **limits)


__all__ = [
    "SCALERS",
    "Bounds",
    "Memory",
    "PoolSample",
    "Rate",
    "ReplicaView",
    "Scale",
    "ScaleReceipt",
    "ScalingPolicy",
    "ScalingPreset",
    "Want",
    "bounded",
    "scaling_preset",
    "within",
]

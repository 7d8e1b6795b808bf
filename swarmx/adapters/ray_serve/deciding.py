"""From the contexts that Serve hands to a policy to replica counts: the scaler, behind a guard that never raises.

Serve asks ten times a second and swallows what a policy raises, whereupon nothing scales any more and no status says
so. Here every failure is counted, logged once a minute and answered by the present target. Between two decisions the
last one is repeated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from swarmx.adapters.ray_serve.demand import Deployment
from swarmx.errors import BadInput
from swarmx.scaler import PoolSettings, Scaler
from swarmx.scaling import ScalingPolicy, scaling_preset
from swarmx.scaling.bounded import Bounds
from swarmx.scaling.budget import DeviceKind
from swarmx.scaling.decisions import ScaleReceipt, Want
from swarmx.scaling.demand import PoolDemand
from swarmx.scaling.history import History
from swarmx.scaling.queue_length import QueueLength
from swarmx.scaling.samples import PoolSample

log = logging.getLogger("ray.serve")  # the controller's own log file; others are not written there
COMPLAIN_S = 60.0
OnReceipt = Callable[[ScaleReceipt], None]


@dataclass(frozen=True, slots=True)
class OrByCount:
    """A policy, and calls per slot where it cannot say: before the first call has ended, or without any reports."""

    policy: ScalingPolicy
    counts: QueueLength = field(default_factory=QueueLength)

    def wants(self, sample: PoolSample, history: History) -> Want | None:
        want = self.policy.wants(sample, history)
        if want is not None:
            return want
        want = self.counts.wants(sample, history)
        return None if want is None else replace(want, why=f"{want.why}; the replicas do not report enough yet")


@dataclass(slots=True)
class Decider:
    """One scaler over some deployments. every_s : between decisions; units, weights : of one replica in a budget

    foreseen : what live workflows will ask of a deployment, None where only counts are known
    """

    scaler: Scaler
    bounds: Bounds
    every_s: float = 1.0
    cold_s: float = 60.0
    units: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    on_receipt: OnReceipt = lambda receipt: None
    on_failure: Callable[[], None] = lambda: None
    foreseen: Callable[[str, float], PoolDemand | None] = lambda deployment, now: None
    failures: int = 0
    decisions: int = 0
    _deployments: dict[str, Deployment] = field(default_factory=dict)
    _decided: dict[str, int] = field(default_factory=dict)
    _told: dict[str, tuple[int, int]] = field(default_factory=dict)  # the last step that has its receipt
    _decided_s: float = float("-inf")
    _complained_s: float = float("-inf")

    def targets(self, contexts: Mapping[str, Any]) -> dict[str, int]:
        """Replicas of each deployment; never raises. contexts : Serve's AutoscalingContext by deployment"""
        held = {name: int(ctx.target_num_replicas) for name, ctx in contexts.items()}
        try:
            now = max((float(ctx.current_time) for ctx in contexts.values()), default=0.0)
            if not 0 <= now - self._decided_s < self.every_s or contexts.keys() - self._decided.keys():
                self._decide(contexts, now)
            return {name: self._decided.get(name, held[name]) for name in contexts}
        except Exception as problem:  # whatever it is, the deployment keeps its replicas
            self.failures += 1
            with contextlib.suppress(Exception):
                self._complain(contexts, problem)
                self.on_failure()
            return held

    def _decide(self, contexts: Mapping[str, Any], now: float) -> None:
        self._decided_s = now
        samples = []
        for name, ctx in contexts.items():
            deployment = self._deployments.setdefault(name, Deployment(name, self.cold_s))
            samples.append(replace(deployment.sample(ctx, now), demand=self.foreseen(name, now)))
        self.scaler.settings = {name: self._settings(name, ctx) for name, ctx in contexts.items()}
        for scale in self.scaler.step(samples):
            self._decided[scale.pool] = scale.target
            self.decisions += 1
            step = (int(contexts[scale.pool].target_num_replicas), scale.target)
            if scale.receipt is not None and step[0] != step[1] and self._told.get(scale.pool) != step:
                self._told[scale.pool] = step
                self.on_receipt(replace(scale.receipt, id=f"{scale.pool}@{now:.3f}"))

    def _settings(self, name: str, ctx: Any) -> PoolSettings:
        """The bounds with Serve's own minimum and maximum, which follow the target capacity."""
        minimum, maximum = int(ctx.capacity_adjusted_min_replicas), int(ctx.capacity_adjusted_max_replicas)
        bounds = replace(self.bounds, minimum=minimum, maximum=max(maximum, minimum, 1))
        kind = DeviceKind(units=self.units.get(name, 1.0))
        return PoolSettings(bounds, (kind,), self.weights.get(name, 1.0))

    def _complain(self, contexts: Mapping[str, Any], problem: Exception) -> None:
        now = monotonic()
        if now - self._complained_s >= COMPLAIN_S:
            self._complained_s = now
            names = ", ".join(contexts)
            log.error("swarmx cannot decide for %s (%d times so far): %r", names, self.failures, problem, exc_info=True)


def decider(
    policy: str = "tail_demand",
    options: Mapping[str, Any] | None = None,
    bounds: Mapping[str, Any] | None = None,
    every_s: float = 1.0,
    cold_s: float = 60.0,
    budget: float | None = None,
    deployments: Mapping[str, Mapping[str, Any]] | None = None,
) -> Decider:
    """Built from what a Serve configuration can hold (JSON).

    policy : a name of `swarmx policies`; options : its own; bounds : fields of `Bounds` instead of the preset's
    deployments : name -> {units, weight}
    Raises BadInput for an unknown name or field and for a value that makes no sense.
    """
    if policy == "clairvoyant":
        raise BadInput("the scaling policy 'clairvoyant' needs a known future, which only a simulation has")
    if unknown := set(bounds or {}) & {"minimum", "maximum"}:
        raise BadInput(f"bounds.{min(unknown)} is Serve's: set min_replicas or max_replicas of its AutoscalingConfig")
    if every_s <= 0 or cold_s <= 0:
        raise BadInput(f"every_s and cold_s must be positive, got {every_s} and {cold_s}")
    try:
        chosen, limits = scaling_preset(policy, **options or {})
        limits = replace(limits, **bounds or {})
    except (TypeError, ValueError) as problem:
        raise BadInput(f"swarmx autoscaling policy: {problem}") from None
    for name, entry in (deployments or {}).items():
        if unknown := set(entry) - {"units", "weight"}:
            raise BadInput(f"deployments.{name}: unknown {min(unknown)!r}; known are units, weight")
    return Decider(
        Scaler(policy, OrByCount(chosen), limits, budget=budget),
        limits,
        every_s,
        cold_s,
        {name: float(entry.get("units", 1.0)) for name, entry in (deployments or {}).items()},
        {name: float(entry.get("weight", 1.0)) for name, entry in (deployments or {}).items()},
    )

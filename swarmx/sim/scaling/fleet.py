"""Replicas that come and go: what an order brings and when, what goes wrong, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf
from typing import Literal

import numpy as np

from swarmx.sim.cluster import ReplicaSpec

Stage = Literal["starting", "ready", "draining", "gone"]


@dataclass(frozen=True, slots=True)
class ColdStart:
    """From the order of a replica until it is ready: lognormal around the median, after some time without a node.

    fail_share : of the starts, those that come to nothing at the end of their time
    pending_share, pending_s : of the starts, those that first wait for a node, and how long on average (exponential)
    """

    median_s: float = 60.0
    sigma: float = 0.1
    fail_share: float = 0.0
    pending_share: float = 0.0
    pending_s: float = 0.0

    def draw(self, rng: np.random.Generator) -> tuple[float, bool]:
        """(seconds, whether it comes to nothing)."""
        seconds = self.median_s * exp(self.sigma * float(rng.standard_normal()))
        if rng.random() < self.pending_share:
            seconds += float(rng.exponential(self.pending_s))
        return seconds, bool(rng.random() < self.fail_share)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of replica of one model.

    spec : template; its id is ignored; price : of one replica-second; limit : nodes that exist
    planned_slots : calls at once within the latency limit, as the scaler is told; None: all slots of the template
    slow_share, slow_speed : of the replicas, those on a slow node, and their speed relative to the template's
    life_s : mean time until a replica crashes, exponential; inf: never
    """

    spec: ReplicaSpec
    cold: ColdStart = ColdStart()
    price: float = 1.0
    planned_slots: int | None = None
    limit: int | None = None
    slow_share: float = 0.0
    slow_speed: float = 0.5
    life_s: float = inf


@dataclass(slots=True)
class Unit:
    """One replica of the fleet through its life. expected_s : when it was expected to be ready, from the median"""

    spec: ReplicaSpec
    kind: Kind
    stage: Stage
    ordered_s: float
    expected_s: float = 0.0
    ended_s: float | None = None


@dataclass
class Fleet:
    """kinds : (model, device) -> kind; units : all that ever were, for the account; present : those not gone"""

    kinds: Mapping[tuple[str, str], Kind]
    rng: np.random.Generator
    units: dict[str, Unit] = field(default_factory=dict)
    present: dict[str, Unit] = field(default_factory=dict)

    def adopt(self, spec: ReplicaSpec, now: float) -> Unit:
        """Count in a replica that is there from the start. Raises ValueError for an unknown kind."""
        unit = Unit(spec, self._kind(spec.model, spec.device), "ready", now, now)
        self.units[spec.id] = self.present[spec.id] = unit
        return unit

    def order(self, model: str, device: str, now: float) -> tuple[Unit, float, bool] | None:
        """(new unit, seconds until it is ready, whether the start fails); None when no node is left."""
        kind = self._kind(model, device)
        here = sum(u.kind is kind for u in self.present.values())
        if kind.limit is not None and here >= kind.limit:
            return None
        seconds, fails = kind.cold.draw(self.rng)
        speed = kind.spec.speed * (kind.slow_speed if self.rng.random() < kind.slow_share else 1.0)
        spec = replace(
            kind.spec, id=f"{model}-{device}-{len(self.units)}", speed=speed, told_speed=kind.spec.speed, device=device
        )
        unit = Unit(spec, kind, "starting", now, now + kind.cold.median_s)
        self.units[spec.id] = self.present[spec.id] = unit
        return unit, seconds, fails

    def end(self, unit: Unit, now: float) -> None:
        unit.stage, unit.ended_s = "gone", now
        del self.present[unit.spec.id]

    def of(self, model: str) -> list[Unit]:
        """Units of the model that are not gone."""
        return [u for u in self.present.values() if u.spec.model == model]

    def replica_seconds(self, since_s: float, until_s: float, *, priced: bool = False) -> float:
        """From order to end of every unit, starting and draining included, within the given time."""
        total = 0.0
        for unit in self.units.values():
            end = until_s if unit.ended_s is None else min(unit.ended_s, until_s)
            total += max(end - max(unit.ordered_s, since_s), 0.0) * (unit.kind.price if priced else 1.0)
        return total

    def _kind(self, model: str, device: str) -> Kind:
        kind = self.kinds.get((model, device))
        if kind is None:
            raise ValueError(f"no kind {device!r} of model {model!r}; the fleet has {sorted(self.kinds)}")
        return kind

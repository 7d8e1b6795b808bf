"""One world for scalers: what arrives, which replicas can be had, which limits hold; and what a run of it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.presets import preset
from swarmx.scaler import PoolSettings, Scaler
from swarmx.scaling import Bounds, scaling_preset
from swarmx.scaling.budget import DeviceKind
from swarmx.scaling.foretell import Foreteller
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import Profiles
from swarmx.scaling.seasonal import Season
from swarmx.sim.cluster import Cluster
from swarmx.sim.contracts import Timing
from swarmx.sim.loop import simulate
from swarmx.sim.results import CallTable
from swarmx.sim.scaling.control import LatencyProbe, ScalingControl, Step, starting
from swarmx.sim.scaling.fleet import Fleet, Kind
from swarmx.sim.scaling.forecasts import Forecast, Forecasts
from swarmx.sim.scaling.oracle import Seconds, TrueDemand
from swarmx.sim.scaling.watch import Limits
from swarmx.sim.workload import Workload

Array = NDArray[np.float64]
FLAP_S = 300.0  # a rise so soon after a fall is a flap


@dataclass(frozen=True)
class Scenario:
    """kinds : (model, device) -> kind; begin : model -> replicas of its first kind at the start
    minimum, maximum : replicas of every pool; budget : units in all; redeploy_cost : see `Scaler`
    token_s : see `ScalingControl`
    profiles : learned from another workload of the same kind; seconds : true service time of a call
    order : preset of the schedulers and its options
    forecasts : of what live workflows still hold, by arm; without one, type averages
    season : of arrivals, learned from earlier ones, for the arm "seasonal"
    """

    name: str
    workload: Workload
    kinds: Mapping[tuple[str, str], Kind]
    begin: Mapping[str, int]
    minimum: int
    maximum: int
    limits: Limits
    profiles: Profiles
    seconds: Seconds
    probe: LatencyProbe | None = None
    budget: float | None = None
    token_s: float | None = None
    period_s: float = 5.0
    order: tuple[str, Mapping[str, Any]] = ("central_fcfs", MappingProxyType({}))
    timing: Timing = field(default_factory=lambda: Timing(retries=20))
    forecasts: Forecasts = field(default_factory=dict)
    redeploy_cost: float = 0.0
    season: Callable[[], Season] | None = None


@dataclass(frozen=True)
class ScalingRun:
    """steps : every decision; replica_seconds : from order to end of every replica; cost : the same, priced"""

    table: CallTable
    steps: list[Step]
    fleet: Fleet
    replica_seconds: float
    cost: float
    seconds: float
    attainment: float

    @property
    def mean_replicas(self) -> float:
        return self.replica_seconds / self.seconds

    @property
    def flaps(self) -> int:
        """Rises of a pool's target within `FLAP_S` after a fall."""
        count = 0
        for pool in {s.pool for s in self.steps}:
            fell, last = -np.inf, None
            for step in (s for s in self.steps if s.pool == pool):
                if last is not None and step.target < last:
                    fell = step.time_s
                elif last is not None and step.target > last and step.time_s - fell <= FLAP_S:
                    count, fell = count + 1, -np.inf
                last = step.target
        return count


def run(
    scenario: Scenario,
    policy: str,
    *,
    options: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
    follow: bool = True,
    arm: str | None = None,
    seed: int = 0,
) -> ScalingRun:
    """Run the scenario under one scaling policy.

    options : of the policy
    bounds : replaces the policy's own, but for minimum and maximum, which are the scenario's
    follow : keep a book of live work for the policy; False: it sees counters alone
    arm : of the scenario's forecasts, or "seasonal"; None, "type" and "oracle" use none of them
    Raises BadInput for an arm that the scenario does not have.
    """
    forecast = _forecast(scenario, arm)
    chosen, own = scaling_preset(policy, bounds, **(options or {}))
    limits = replace(own, minimum=scenario.minimum, maximum=scenario.maximum)
    rng = np.random.default_rng(seed)
    fleet = Fleet(scenario.kinds, rng)
    control = ScalingControl(
        Scaler(
            policy,
            chosen,
            limits,
            _settings(scenario, limits),
            scenario.budget,
            redeploy_cost=scenario.redeploy_cost,
            with_receipts=False,
        ),
        fleet,
        scenario.period_s,
        LiveWork(scenario.profiles, season=_season(scenario, arm)) if follow else None,
        scenario.limits,
        scenario.probe,
        TrueDemand(scenario.workload, scenario.seconds, scenario.profiles.edges_s) if policy == "clairvoyant" else None,
        token_s=scenario.token_s,
        foreteller=None if forecast is None else Foreteller(forecast.forecaster, forecast.token_s),
    )
    first = {model: device for model, device in reversed(list(scenario.kinds))}
    begin = {m: (scenario.kinds[m, first[m]].spec, n) for m, n in scenario.begin.items()}
    name, order = scenario.order
    schedulers = {model: preset(name, seed, **order) for model in scenario.begin}
    table = simulate(
        scenario.workload, Cluster(starting(begin)), schedulers, None if forecast is None else forecast.arm,
        scenario.timing, seed=seed, control=control,
    )  # fmt: skip
    end = float(np.nanmax(table.finished_s))
    attained = sum(t.kept for t in control.tallies.values()) / max(sum(t.judged for t in control.tallies.values()), 1)
    return ScalingRun(
        table, control.steps, fleet, fleet.replica_seconds(0.0, end), fleet.replica_seconds(0.0, end, priced=True),
        end, attained,
    )  # fmt: skip


def _season(scenario: Scenario, arm: str | None) -> Season | None:
    if arm != "seasonal":
        return None
    if scenario.season is None:
        raise BadInput(f"scenario {scenario.name} has no season to foretell arrivals by")
    return scenario.season()


def _forecast(scenario: Scenario, arm: str | None) -> Forecast | None:
    if arm in (None, "type", "oracle", "seasonal"):
        return None
    if arm not in scenario.forecasts:
        raise BadInput(f"scenario {scenario.name} has no arm {arm!r}; it has type, {', '.join(scenario.forecasts)}")
    return scenario.forecasts[arm]()


def _settings(scenario: Scenario, limits: Bounds) -> dict[str, PoolSettings]:
    found: dict[str, list[DeviceKind]] = {}
    for (model, device), kind in scenario.kinds.items():
        slots = float(kind.planned_slots or kind.spec.slots) * kind.spec.speed
        found.setdefault(model, []).append(DeviceKind(device, slots, kind.price, 1.0, kind.limit))
    return {model: PoolSettings(limits, tuple(kinds)) for model, kinds in found.items()}


Build = Callable[[int], Scenario]

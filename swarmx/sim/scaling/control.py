"""The scaler in the loop: samples are taken, the real `Scaler` decides, the fleet carries it out after its delays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Protocol

from swarmx.scaler import Scaler
from swarmx.scaling import PoolSample, ReplicaView, Scale
from swarmx.scaling.demand import PoolDemand
from swarmx.scaling.foretell import Foreteller
from swarmx.scaling.live import LiveWork
from swarmx.sim.clock import Clock
from swarmx.sim.cluster import Fault, ReplicaSpec
from swarmx.sim.exchange import Exchange
from swarmx.sim.job import Job
from swarmx.sim.loop import replica_of
from swarmx.sim.periods import Periods
from swarmx.sim.pool import Pool
from swarmx.sim.replicas import Replica
from swarmx.sim.scaling.fleet import Fleet, Unit
from swarmx.sim.scaling.watch import Limits, Tally, Watched

NO_LIMITS = Limits()


class LatencyProbe(Protocol):
    """Estimates latency over its limit, for each ready replica and for a call that arrives now."""

    def __call__(self, model: str, pool: Pool, ready: list[Unit], tally: Tally, now: float) -> dict[str, float]: ...


class Oracle(Protocol):
    """The true future demand of every model."""

    def __call__(self, pools: Mapping[str, Pool], now: float) -> Mapping[str, PoolDemand]: ...


@dataclass(frozen=True, slots=True)
class Step:
    """What one decision left. target : after bounds; ready, committed : replicas before it was carried out"""

    time_s: float
    pool: str
    target: int
    ready: int
    committed: int
    scale: Scale


class ScalingControl:
    """A `Control` of the simulation loop.

    period_s : between decisions; live : book of live work, None where nobody keeps one; limits : of every pool's calls
    probe : latency estimates for the policies that use them; oracle : for the clairvoyant
    detect_s : from a crash until the routers know
    foreteller : of what live workflows still hold; None: type averages
    token_s : seconds per token at the pace that the live work's profiles were learned at; progress is then told in it
    After the run, `steps` holds every decision and `fleet` the account.
    """

    def __init__(
        self,
        scaler: Scaler,
        fleet: Fleet,
        period_s: float = 5.0,
        live: LiveWork | None = None,
        limits: Limits = NO_LIMITS,
        probe: LatencyProbe | None = None,
        oracle: Oracle | None = None,
        detect_s: float = 1.0,
        token_s: float | None = None,
        foreteller: Foreteller | None = None,
    ) -> None:
        self.scaler, self.fleet, self.period_s, self.live = scaler, fleet, period_s, live
        self.limits, self.probe, self.oracle, self.detect_s = limits, probe, oracle, detect_s
        self.token_s, self.foreteller = token_s, foreteller
        self.steps: list[Step] = []
        self.ended_s = 0.0

    def begin(self, clock: Clock, pools: Mapping[str, Pool], exchange: Exchange, periods: Periods) -> None:
        self.clock, self.pools, self.exchange, self.periods = clock, pools, exchange, periods
        self.tallies = {model: Tally(self.limits) for model in pools}
        self.places = sum(len(pool.replicas) for pool in pools.values())
        for model, pool in pools.items():
            for router in pool.routers:
                router.scheduler = Watched(router.scheduler, self.tallies[model], self.live, self.foreteller)
            for replica in pool.replicas.values():
                self._may_crash(self.fleet.adopt(replica.spec, clock.now), replica)
        clock.at(clock.now, self._step, None)

    # --- observing ---

    def _step(self, _: None) -> None:
        now = self.clock.now
        self._tell_progress(now)
        if self.foreteller is not None and self.live is not None:
            self.foreteller.tell(self.live, now)
        demands = self.live.demands(now, self._fixed_slots()) if self.live is not None else {}
        futures = self.oracle(self.pools, now) if self.oracle is not None else {}
        samples = [
            replace(self.sample(model), demand=demands.get(model), oracle=futures.get(model)) for model in self.pools
        ]
        for scale in self.scaler.step(samples):
            self._carry_out(scale)
        self.clock.at(now + self.period_s, self._step, None)

    def _tell_progress(self, now: float) -> None:
        if self.live is None or self.token_s is None:
            return
        for pool in self.pools.values():
            for replica in pool.replicas.values():
                for job, tokens in list(replica.progress(now)):
                    self.live.progressed(job.call.id, tokens * self.token_s, now)
                self.exchange.touch(replica)

    def _fixed_slots(self) -> dict[str, float] | None:
        """Ready slots of every pool, where a budget keeps all of them from growing at once."""
        if self.scaler.budget is None:
            return None
        ready = {m: [u.spec for u in self.fleet.of(m) if u.stage == "ready"] for m in self.pools}
        return {m: float(sum(spec.slots * spec.speed for spec in specs)) for m, specs in ready.items()}

    def sample(self, model: str) -> PoolSample:
        """What the scaler sees of a pool now."""
        pool, tally, now = self.pools[model], self.tallies[model], self.clock.now
        bound = self._bound(pool)
        units = self.fleet.of(model)
        running = sum(pool.replicas[u.spec.id].running for u in units if u.spec.id in pool.replicas)
        calls = sum(len(router.jobs) for router in pool.routers)
        ratios: dict[str, float] = {}
        if self.probe is not None:
            ready = [u for u in units if u.stage == "ready"]
            ratios = self.probe(model, pool, ready, tally, now)
        views = tuple(self._view(u, bound.get(u.spec.id, []), ratios.get(u.spec.id), now) for u in units)
        colds = [u.kind.cold.median_s for u in units] or [
            kind.cold.median_s for (owner, _), kind in self.fleet.kinds.items() if owner == model
        ]
        return PoolSample(
            model, now, views, calls - running, running, tally.arrived, tally.finished, tally.service_s,
            ratios.get(""), tally.judged, tally.kept, cold_s=max(colds),
        )  # fmt: skip

    def _bound(self, pool: Pool) -> dict[str, list[Job]]:
        bound: dict[str, list[Job]] = {}
        for router in pool.routers:
            for job in router.jobs.values():
                if job.replica is not None:
                    bound.setdefault(job.replica.spec.id, []).append(job)
        return bound

    def _view(self, unit: Unit, jobs: list[Job], ratio: float | None, now: float) -> ReplicaView:
        kind, stage = unit.kind, unit.stage
        slots = kind.spec.slots if kind.planned_slots is None else kind.planned_slots
        # a start that takes longer than expected is expected any moment
        ready_in = max(unit.expected_s - now, 0.0) if stage == "starting" else 0.0
        assert stage != "gone"
        return ReplicaView(
            unit.spec.id,
            stage,
            len(jobs),
            slots,
            kind.spec.speed,
            unit.spec.device,
            ready_in,
            float(len(jobs)),
            kind.price,
            ratio,
        )

    # --- carrying out ---

    def _carry_out(self, scale: Scale) -> None:
        pool, now = self.pools[scale.pool], self.clock.now
        units = self.fleet.units
        ready = sum(u.stage == "ready" for u in self.fleet.of(scale.pool))
        committed = ready + sum(u.stage == "starting" for u in self.fleet.of(scale.pool))
        self.steps.append(Step(now, scale.pool, scale.target, ready, committed, scale))
        for device, count in scale.add.items():
            for _ in range(count):
                self._order(scale.pool, device)
        for name in scale.cancel:
            if units[name].stage == "starting":
                self.fleet.end(units[name], now)
        for names, stage in ((scale.drain, "draining"), (scale.resume, "ready")):
            for name in names:
                units[name].stage = stage  # type: ignore[assignment]
                pool.replicas[name].draining = stage == "draining"
        if scale.drain or scale.resume:
            self.periods.announce(pool)
        for name in scale.remove:
            self._remove(pool, units[name])

    def _order(self, model: str, device: str) -> None:
        found = self.fleet.order(model, device, self.clock.now)
        if found is not None:
            unit, seconds, fails = found
            self.clock.at(self.clock.now + seconds, self._fail if fails else self._ready, unit)

    def _fail(self, unit: Unit) -> None:
        if unit.stage == "starting":
            self.fleet.end(unit, self.clock.now)

    def _ready(self, unit: Unit) -> None:
        if unit.stage != "starting":
            return
        unit.stage = "ready"
        replica = replica_of(unit.spec, self.places)
        self.places += 1
        pool = self.pools[unit.spec.model]
        pool.replicas[unit.spec.id] = replica
        self.exchange.idle_ticks = 0
        self._may_crash(unit, replica)
        self.periods.announce(pool)

    def _remove(self, pool: Pool, unit: Unit) -> None:
        """Look once more: a call may have been bound to it since it was seen to be empty."""
        replica = pool.replicas[unit.spec.id]
        if unit.stage != "draining" or replica.running or replica.waiting_count or unit.spec.id in self._bound(pool):
            return
        self.fleet.end(unit, self.clock.now)
        replica.up = False
        self.periods.announce(pool)
        del pool.replicas[unit.spec.id]

    def _may_crash(self, unit: Unit, replica: Replica) -> None:
        if isfinite(unit.kind.life_s):
            life = float(self.fleet.rng.exponential(unit.kind.life_s))
            self.clock.at(self.clock.now + life, self._crash, (unit, replica))

    def _crash(self, argument: tuple[Unit, Replica]) -> None:
        unit, replica = argument
        if unit.stage == "gone":
            return
        now, pool = self.clock.now, self.pools[unit.spec.model]
        self.fleet.end(unit, now)
        self.periods.fault((Fault(now, unit.spec.id, "down", detect_s=self.detect_s), replica, pool))
        self.clock.at(now + self.detect_s, self._forget, (pool, unit.spec.id))

    def _forget(self, argument: tuple[Pool, str]) -> None:
        pool, name = argument
        pool.replicas.pop(name, None)


def starting(kinds: Mapping[str, tuple[ReplicaSpec, int]]) -> tuple[ReplicaSpec, ...]:
    """Replicas that a run begins with: model -> (template, how many)."""
    return tuple(
        replace(spec, id=f"{model}-{spec.device}-start{i}", model=model)
        for model, (spec, count) in kinds.items()
        for i in range(count)
    )

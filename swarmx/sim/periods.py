"""What happens by itself: ticks, reports of state and progress, replicas that come, go, slow down or drain."""

from __future__ import annotations

from math import inf

from swarmx.shard import Shard
from swarmx.sim.cluster import Fault
from swarmx.sim.exchange import Exchange
from swarmx.sim.pool import Pool, Router
from swarmx.sim.replicas import Replica
from swarmx.types import ReplicaState
from swarmx.waiting import Key

IDLE_TICKS = 100_000  # so many ticks in a row with nothing inside any replica: the scheduler is stuck


class Periods:
    """Periods of a pool run while it has calls, and begin again with the next one."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.clock = exchange.clock
        self.timing = exchange.timing

    def start(self, router: Router) -> None:
        router.ticking = True
        self.clock.at(self.clock.now + router.scheduler.tick_s, self._tick, router)
        for name, period, action in (
            ("report", self.timing.report_period_s, self._report),
            ("progress", self.timing.progress_period_s, self._progress),
            ("heads", self.timing.heads_period_s, self._heads),
        ):
            if period is not None and name not in router.pool.periods:
                router.pool.periods.add(name)
                self.clock.at(self.clock.now + period, action, router.pool)

    def _tick(self, router: Router) -> None:
        if not router.jobs:
            router.ticking = False
            return
        exchange = self.exchange
        exchange.idle_ticks = 0 if exchange.in_service else exchange.idle_ticks + 1
        if exchange.idle_ticks > IDLE_TICKS:
            raise RuntimeError(
                f"nothing has run for {IDLE_TICKS} ticks, and the scheduler holds {len(router.jobs)} calls, first "
                f"{next(iter(router.jobs))!r}"
            )
        now, scheduler = self.clock.now, router.scheduler
        decisions = scheduler.tick(now)
        if decisions:
            exchange.apply(router, decisions)
        self.clock.at(now + max(scheduler.tick_s, 1e-6), self._tick, router)

    def _report(self, pool: Pool) -> None:
        if pool.is_quiet:
            pool.periods.discard("report")
            return
        self.clock.at(self.clock.now + self.timing.report_delay_s, self._tell_states, (pool, self._states(pool)))
        self.clock.at(self.clock.now + (self.timing.report_period_s or inf), self._report, pool)

    def _progress(self, pool: Pool) -> None:
        if pool.is_quiet:
            pool.periods.discard("progress")
            return
        now = self.clock.now
        for replica in pool.replicas.values():
            if replica.running:
                for job, tokens in list(replica.progress(now)):
                    if job.sim.stuck:
                        continue
                    self.exchange.apply(job.router, job.router.scheduler.progress(job.call.id, tokens, now))
                self.exchange.touch(replica)
        self.clock.at(now + (self.timing.progress_period_s or inf), self._progress, pool)

    def _heads(self, pool: Pool) -> None:
        """Every router's head is sent to every other."""
        if pool.is_quiet:
            pool.periods.discard("heads")
            return
        shards = [router.scheduler for router in pool.routers if isinstance(router.scheduler, Shard)]
        heads = {shard.me: shard.head(self.clock.now) for shard in shards}
        self.exchange.after_network(self._tell_heads, (shards, heads))
        self.clock.at(self.clock.now + (self.timing.heads_period_s or inf), self._heads, pool)

    def _tell_heads(self, argument: tuple[list[Shard], dict[str, Key | None]]) -> None:
        shards, heads = argument
        for shard in shards:
            for name, head in heads.items():
                if name != shard.me:
                    shard.heard(name, head, self.clock.now)

    def fault(self, argument: tuple[Fault, Replica, Pool]) -> None:
        fault, replica, pool = argument
        if fault.kind == "speed":
            replica.set_speed(fault.speed, self.clock.now)
            self.exchange.touch(replica)
            return
        if fault.kind == "drain":
            replica.draining = True
        else:
            replica.up = fault.kind == "up"
            replica.draining = False
            self.exchange.drop(replica)
        self.exchange.idle_ticks = 0
        if fault.detect_s:
            self.clock.at(self.clock.now + fault.detect_s, self.announce, pool)
        else:
            self.announce(pool)  # before the errors, which are then no news

    def announce(self, pool: Pool) -> None:
        """Every router learns which replicas there are. It takes its calls back from those that are gone."""
        gone = {r.index for r in pool.replicas.values() if not r.up}
        for router in pool.routers if gone else ():
            for job in router.jobs.values():
                if job.replica is not None and job.replica.index in gone:
                    job.replica = None
                if job.replica is None:
                    job.attempt += bool(job.attempt)  # an error on its way is no news any more
        if self.timing.report_period_s is None:
            states = [r.spec.state(draining=r.draining) for r in pool.replicas.values() if r.up]
        else:
            states = self._states(pool)
        self._tell_states((pool, states))

    def _states(self, pool: Pool) -> list[ReplicaState]:
        up = [r for r in pool.replicas.values() if r.up]
        states = [r.state(self.clock.now) for r in up]
        for replica in up:
            self.exchange.touch(replica)
        return states

    def _tell_states(self, argument: tuple[Pool, list[ReplicaState]]) -> None:
        pool, states = argument
        for router in pool.routers:
            self.exchange.apply(router, router.scheduler.replicas_changed(states, self.clock.now))

"""No call is lost when replicas go, whatever they were doing, and whatever happens to them while they drain."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pytest

from swarmx.presets import preset
from swarmx.scaler import Scaler
from swarmx.scaling import Bounds, PoolSample, Want
from swarmx.scaling.history import History
from swarmx.sim import CallTable, Cluster, ReplicaSpec, Timing, simulate
from swarmx.sim.scaling.control import ScalingControl, starting
from swarmx.sim.scaling.fleet import ColdStart, Fleet, Kind
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import arriving, poisson

SHORT = Sizes(mean_tokens=4.0, cv=1.0, tool_s=1.0)


@dataclass(frozen=True)
class Wandering:
    """Wants any number of replicas, at any time another one."""

    seed: int
    most: int = 8

    def wants(self, sample: PoolSample, history: History) -> Want:
        draw = crc32(f"{self.seed}/{history.clock_s // 4}".encode())
        return Want(draw % (self.most + 1))


def scenario(seed: int, crashes: bool) -> tuple[CallTable, ScalingControl]:
    """A few workflows on one pool whose size wanders; batched or not, with and without delays, by the seed."""
    rng = np.random.default_rng([seed, 7])
    workload = arriving(mix(6, SHORT, rng), 0.4, poisson, rng)
    batched = bool(rng.random() < 0.5)
    spec = ReplicaSpec("", batched=batched, slots=int(rng.integers(1, 4)), start_if_free=bool(rng.random() < 0.3))
    # long enough that the longest call ends on some replica before it crashes, within the retries
    life = float(rng.uniform(20, 60)) if crashes else float("inf")
    kind = Kind(spec, ColdStart(float(rng.uniform(1, 10)), 0.3, fail_share=0.2), life_s=life)
    bounds = Bounds(minimum=0, maximum=8, down_delay_s=0.0, consolidate=None, zero_after_s=float(rng.uniform(0, 20)))
    fleet = Fleet({("model", "default"): kind}, rng)
    network_s = float(rng.choice([0.0, 0.02, 0.5]))
    # a router that hears of an error at once would send the call to the dead replica again and again until it knows
    detect_s = float(rng.uniform(0, 2)) if network_s else 0.0
    control = ScalingControl(Scaler("wandering", Wandering(seed), bounds), fleet, period_s=1.0, detect_s=detect_s)
    policy = preset(("central_fcfs", "least_outstanding", "power_of_two")[seed % 3], seed)
    timing = Timing(network_s=network_s, retries=1000)
    cluster = Cluster(starting({"model": (spec, int(rng.integers(1, 6)))}))
    return simulate(workload, cluster, policy, None, timing, seed=seed, control=control), control


def check(seed: int) -> None:
    crashes = seed % 2 == 1
    table, control = scenario(seed, crashes)
    wanted = np.array([c.output_tokens for c in table.workload.calls()])
    assert table.ok.all()
    assert table.output_tokens == pytest.approx(wanted)
    assert any(step.scale.drain or step.scale.cancel for step in control.steps)
    if not crashes and not control.fleet.kinds["model", "default"].spec.start_if_free:
        assert (table.attempts == 1).all()  # a drained replica ends what it has begun: nothing is cut, nothing is moved


@pytest.mark.parametrize("first", range(0, 30, 6))
def test_no_call_is_lost_when_replicas_drain_fail_and_crash(first: int) -> None:
    for seed in range(first, first + 6):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_no_call_is_lost_in_a_thousand_scenarios(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


def test_a_replica_that_crashes_while_draining_gives_its_calls_back() -> None:
    seen = 0
    for seed in range(1, 30, 2):
        table, control = scenario(seed, crashes=True)
        drained: dict[str, float] = {}
        for step in control.steps:
            drained.update(dict.fromkeys(step.scale.drain, step.time_s))
        removed = {name for step in control.steps for name in step.scale.remove}
        crashed = {
            n for n, t in drained.items() if (e := control.fleet.units[n].ended_s) is not None and e > t
        } - removed
        seen += len(crashed)
        assert table.ok.all()
    assert seen >= 3

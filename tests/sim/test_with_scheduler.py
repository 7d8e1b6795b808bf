"""The project's own scheduler in the loop: it must cope with all that the simulator can do to it."""

import numpy as np
import pytest

from swarmx.engine import EngineConstants
from swarmx.presets import PRESETS, preset
from swarmx.sim import Cluster, Fault, ReplicaSpec, Timing, cluster, het_speeds, simulate
from swarmx.sim.arms import Calibrated
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.synthetic import Sessions, Sizes, agents, mix
from swarmx.sim.workload import poisson

ENGINE = EngineConstants(0.015, 0.0005, 1.5e-7, 5e-5)
JOB = ReplicaSpec("r", service=EngineConstants(0.01))
BATCHED = ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=20_000)


def a_run(replicas, policy, load=0.7, n=40, timing=None, routers=1, faults=(), seed=3):
    flows = mix(n, Sizes(prompt_tokens=300), np.random.default_rng(seed))
    workload = at_load(flows, load, capacity(replicas, flows), poisson, np.random.default_rng(seed + 1))
    group = [preset(policy, seed=k) for k in range(routers)]
    with_faults = Cluster(replicas.replicas, tuple(faults))
    return simulate(workload, with_faults, {"model": group}, Calibrated(flows), timing or Timing(), seed=seed)


@pytest.mark.parametrize("policy", list(PRESETS))
@pytest.mark.parametrize("template", [JOB, BATCHED], ids=["job", "batched"])
def test_every_preset_finishes_every_call(policy, template):
    table = a_run(cluster(template, het_speeds(6)), policy, n=25)
    assert table.ok.all()
    assert table.workflow_ok().all()


@pytest.mark.parametrize("policy", ["least_outstanding_per_speed", "push", "late"])
def test_the_same_run_twice_is_the_same(policy):
    first, second = (a_run(cluster(JOB, het_speeds(6)), policy) for _ in range(2))
    np.testing.assert_array_equal(first.finished_s, second.finished_s)


@pytest.mark.parametrize("policy", ["least_outstanding_per_speed", "central_fcfs", "push", "late"])
@pytest.mark.parametrize("detect_s", [0.0, 2.0])
def test_no_call_is_lost_when_replicas_die_and_come_back(policy, detect_s):
    faults = [
        Fault(35.0, "r1", "down", detect_s=detect_s),
        Fault(60.0, "r0", "down", detect_s=detect_s),
        Fault(90.0, "r1", "up"),
        Fault(150.0, "r0", "up"),
        Fault(50.0, "r4", "speed", 0.1),
        Fault(70.0, "r5", "drain"),
    ]
    # while a death is unknown, a call may be sent to the dead replica again and again: allow many tries
    timing = Timing(network_s=0.05, retries=100)
    table = a_run(cluster(BATCHED, het_speeds(6)), policy, timing=timing, faults=faults)
    assert table.ok.all()
    assert (table.attempts > 1).any()
    assert (table.started_s >= table.dispatched_s).all()  # times are those of the attempt that went well


@pytest.mark.parametrize("policy", ["least_outstanding_per_speed", "late"])
def test_delays_reports_and_progress_change_no_outcome_but_times(policy):
    timing = Timing(0.01, 0.005, 0.02, report_period_s=1.0, report_delay_s=0.2, progress_period_s=1.0)
    table = a_run(cluster(BATCHED, het_speeds(6)), policy, timing=timing)
    assert table.ok.all()
    assert (table.attempts == 1).all()


def test_four_routers_with_old_views_finish_everything_through_refusals():
    template = ReplicaSpec("r", service=EngineConstants(0.01), start_if_free=True)
    timing = Timing(network_s=0.002, report_period_s=1.0)
    table = a_run(cluster(template, het_speeds(6)), "late", load=0.8, n=60, timing=timing, routers=4)
    assert table.ok.all()
    assert (table.attempts > 1).any()  # some starts met a replica that was taken


def test_a_cold_start_is_used_once_it_is_there():
    specs = tuple(ReplicaSpec(f"r{i}", service=EngineConstants(0.01), ready_s=0.0 if i < 3 else 60.0) for i in range(6))
    table = a_run(Cluster(specs), "late")
    late_ones = table.replica >= 3
    assert late_ones.any()
    assert table.started_s[late_ones].min() >= 60.0


def test_cached_prefixes_are_found_where_prompts_repeat():
    flows = agents(30, Sizes(mean_tokens=150), np.random.default_rng(5), Sessions(block_tokens=64))
    template = ReplicaSpec("r", batched=True, slots=8, service=ENGINE, kv_capacity_tokens=60_000, block_tokens=64)
    replicas = cluster(template, [1.0, 1.0])
    workload = at_load(flows, 0.7, capacity(replicas, flows), poisson, np.random.default_rng(6))
    warm = simulate(workload, replicas, preset("least_outstanding_per_speed"))
    cold = simulate(workload, cluster(BATCHED, [1.0, 1.0]), preset("least_outstanding_per_speed"))
    assert warm.cached_share() > 0.3
    assert cold.cached_share() == 0.0
    assert warm.ttft_s().mean() < cold.ttft_s().mean()

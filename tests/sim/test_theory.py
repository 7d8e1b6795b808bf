"""The simulator against queueing theory. Intervals come from batch means; seeds are fixed."""

import numpy as np
import pytest
from small_schedulers import CentralFcfs, InTurn, LeastWorkLeft

from swarmx.sim import ReplicaSpec, SimCall, SimWorkflow, arriving, cluster, simulate
from swarmx.sim.arms import Oracle
from swarmx.sim.theory import batch_means, erlang_c, mean_in_system, mg1_wait_s, mmc_wait_s
from swarmx.sim.workload import poisson

CALLS = 40_000


def single_calls(lengths, per_s, rng):
    flows = [SimWorkflow(f"w{i}", 0.0, (SimCall("c", float(x)),)) for i, x in enumerate(lengths)]
    return arriving(flows, per_s, poisson, rng)


def run(lengths, per_s, servers, scheduler, arm=None, seed=1):
    rng = np.random.default_rng(seed)
    return simulate(single_calls(lengths, per_s, rng), cluster(ReplicaSpec("r"), [1.0] * servers), scheduler, arm)


def assert_in_interval(values, expected):
    # 1.5 x the 95 % half width is a 99.5 % interval for 20 batches: t(19) = 3.14 against 2.09
    mean, half = batch_means(values)
    assert abs(mean - expected) < 1.5 * half, (mean, expected, half)
    assert half < 0.2 * expected  # the interval must be able to fail


def test_mm1_mean_wait():
    lengths = np.random.default_rng(11).exponential(1.0, CALLS)
    assert_in_interval(run(lengths, 0.6, 1, CentralFcfs()).wait_s(), mmc_wait_s(0.6, 1.0, 1))


@pytest.mark.parametrize("servers", [2, 8])
def test_mmc_mean_wait(servers):
    lengths = np.random.default_rng(12).exponential(1.0, CALLS)
    table = run(lengths, 0.7 * servers, servers, CentralFcfs())
    assert_in_interval(table.wait_s(), mmc_wait_s(0.7 * servers, 1.0, servers))


def test_one_replica_with_slots_is_a_central_queue_over_as_many_servers():
    rng = np.random.default_rng(13)
    workload = single_calls(rng.exponential(1.0, 5000), 3.2, rng)
    slots = simulate(workload, cluster(ReplicaSpec("r", slots=4), [1.0]), InTurn())
    servers = simulate(workload, cluster(ReplicaSpec("r"), [1.0] * 4), CentralFcfs())
    assert slots.wait_s().mean() > 0.1
    np.testing.assert_allclose(slots.finished_s, servers.finished_s, atol=1e-8)


@pytest.mark.parametrize("cv", [0.5, 1.5])
def test_mg1_mean_wait(cv):
    spread2 = np.log(1 + cv**2)
    lengths = np.random.default_rng(14).lognormal(-spread2 / 2, np.sqrt(spread2), CALLS)
    assert_in_interval(run(lengths, 0.6, 1, CentralFcfs()).wait_s(), mg1_wait_s(0.6, 1.0, cv))


def test_erlang_c_of_one_server_is_its_load():
    assert erlang_c(0.3, 1) == pytest.approx(0.3)


def test_littles_law_holds_exactly_over_a_whole_run():
    lengths = np.random.default_rng(15).exponential(1.0, 5000)
    table = run(lengths, 3.0, 4, CentralFcfs())
    span = table.finished_s.max() - table.arrival_s.min()
    expected = len(lengths) / span * table.call_latency_s().mean()
    assert mean_in_system(table.arrival_s, table.finished_s) == pytest.approx(expected, rel=1e-9)


def test_no_server_is_idle_while_a_call_waits():
    lengths = np.random.default_rng(16).lognormal(0, 1, 5000)
    table = run(lengths, 2.2, 4, CentralFcfs())
    waited = table.started_s > table.arrival_s + 1e-12
    assert 0.2 < waited.mean() < 0.9
    assert np.isin(table.started_s[waited], table.finished_s).all()  # whoever waited starts when somebody ends
    busy = np.concatenate([np.ones(5000), -np.ones(5000)])
    times = np.concatenate([table.started_s, table.finished_s])
    order = np.lexsort((busy, times))  # at one moment ends come before starts
    count = np.cumsum(busy[order])
    at = np.searchsorted(times[order], table.arrival_s[waited], side="right") - 1
    assert (count[at] == 4).all()


def test_work_takes_its_time_and_no_more():
    lengths = np.random.default_rng(17).lognormal(0, 1, 2000)
    table = run(lengths, 2.2, 4, CentralFcfs())
    np.testing.assert_allclose(table.finished_s - table.started_s, lengths, rtol=1e-9)


def test_same_seed_same_table():
    lengths = np.random.default_rng(18).lognormal(0, 1, 2000)
    first, second = (run(lengths, 2.2, 4, CentralFcfs()) for _ in range(2))
    np.testing.assert_array_equal(first.finished_s, second.finished_s)
    np.testing.assert_array_equal(first.replica, second.replica)


def test_clairvoyant_least_work_left_equals_central_fcfs_on_equal_servers():
    lengths = np.random.default_rng(19).lognormal(0, 1, 5000)
    central = run(lengths, 3.0 / np.exp(0.5), 4, CentralFcfs())
    immediate = run(lengths, 3.0 / np.exp(0.5), 4, LeastWorkLeft(), Oracle())
    assert central.wait_s().mean() > 0.1
    np.testing.assert_allclose(immediate.finished_s, central.finished_s, atol=1e-8)

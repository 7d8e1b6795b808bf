"""Figures of a run and paired comparisons."""

import numpy as np
import pytest
from small_schedulers import InTurn

from swarmx.sim import ReplicaSpec, SimCall, SimWorkflow, Workload, cluster, compare, simulate
from swarmx.sim.results import t_975

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("freedom", [1, 2, 4, 6, 7, 15, 31, 1000])
def test_t_quantiles_are_students(freedom):
    assert t_975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)


def test_a_ratio_is_a_geometric_mean_with_its_t_interval():
    reference = [10.0, 20.0, 40.0, 80.0]
    ratios = np.array([0.5, 0.6, 0.7, 0.8])
    found = compare(ratios * reference, reference)
    assert found.ratio == pytest.approx(stats.gmean(ratios))
    low, high = stats.t.interval(0.95, 3, np.log(ratios).mean(), stats.sem(np.log(ratios)))
    assert (found.low, found.high) == (pytest.approx(np.exp(low), rel=1e-3), pytest.approx(np.exp(high), rel=1e-3))


def test_equal_runs_compare_as_one_exactly():
    assert compare([3.0, 4.0], [3.0, 4.0]).ratio == 1.0
    assert compare([3.0, 4.0], [3.0, 4.0]).high == 1.0


def test_one_seed_has_no_interval():
    found = compare([2.0], [1.0])
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), 0.0, float("inf"))


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([float("nan")], [1.0])])
def test_unusable_comparisons_are_refused(a, b):
    with pytest.raises(ValueError, match="paired comparison"):
        compare(a, b)


def test_figures_of_a_run_are_those_of_its_calls_and_workflows():
    calls = (SimCall("a", 1.0), SimCall("b", 2.0, (0,)))
    flows = tuple(SimWorkflow(f"w{i}", 10.0 * i, calls) for i in range(10))
    table = simulate(Workload(flows), cluster(ReplicaSpec("r"), [1.0]), InTurn())
    figures = table.figures(np.full(10, 3.5))
    assert figures["call_n"] == 20
    assert figures["workflow_n"] == 10
    assert figures["call_p50_s"] == pytest.approx(1.5)
    assert figures["workflow_p99_s"] == pytest.approx(3.0)
    assert figures["ttft_p50_s"] == pytest.approx(0.0)
    assert figures["slo_attainment"] == 1.0
    assert table.figures(np.full(10, 2.5))["slo_attainment"] == 0.0

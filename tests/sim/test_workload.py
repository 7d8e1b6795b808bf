"""Arrivals, capacity and load."""

import numpy as np
import pytest

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Workload, arriving, cluster, het_speeds, hom_speeds
from swarmx.sim.capacity import at_load, capacity
from swarmx.sim.workload import GammaGaps, OnOffGaps, RecordedGaps, poisson

ONE = SimWorkflow("w", 0.0, (SimCall("c", 2.0),))


@pytest.mark.parametrize(
    "gaps", [poisson, GammaGaps(3.0), OnOffGaps(), RecordedGaps((0.0, 1.0, 1.5, 9.0))], ids=lambda g: type(g).__name__
)
def test_arrivals_come_in_order_at_exactly_the_wanted_rate(gaps):
    workload = arriving([ONE] * 500, 4.0, gaps, np.random.default_rng(1))
    times = [w.arrival_s for w in workload.workflows]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(500 / 4.0)


@pytest.mark.parametrize(("gaps", "cv"), [(poisson, 1.0), (GammaGaps(0.5), 0.5), (GammaGaps(2.0), 2.0)])
def test_gaps_have_their_coefficient_of_variation(gaps, cv):
    drawn = gaps(100_000, np.random.default_rng(2))
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.05)  # 5 sd of the estimate at cv 2 is 0.04


def test_on_off_arrivals_are_burstier_than_poisson_over_a_phase():
    gaps = OnOffGaps(ratio=5.0, period=400.0)(50_000, np.random.default_rng(3))
    counts = np.histogram(np.cumsum(gaps), bins=np.arange(0, gaps.sum(), 50.0))[0]
    assert counts.var() / counts.mean() > 5  # 1 for Poisson
    assert gaps.mean() == pytest.approx(1.0, rel=0.2)


def test_recorded_gaps_are_the_recorded_ones_from_a_random_place_on():
    gaps = RecordedGaps((0.0, 1.0, 1.5, 9.0))(6, np.random.default_rng(4)) * 3.0
    around = np.tile([1.0, 0.5, 7.5], 3)
    assert any(np.allclose(gaps, around[k : k + 6]) for k in range(3))


@pytest.mark.parametrize("times", [(), (1.0,), (2.0, 1.0), (1.0, 1.0), (0.0, float("nan"))])
def test_unusable_recorded_arrivals_are_refused(times):
    with pytest.raises(BadInput, match="recorded arrivals"):
        RecordedGaps(times)(3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ((), "empty"),
        ((SimWorkflow("w", 0.0, ()),), "no calls"),
        ((SimWorkflow("w", float("nan"), ONE.calls),), "arrives at nan"),
        ((SimWorkflow("a", 2.0, ONE.calls), SimWorkflow("b", 1.0, ONE.calls)), "'b' arrives at 1.0"),
        ((SimWorkflow("w", 0.0, (SimCall("c", float("nan")),)),), "output_tokens must be positive"),
        ((SimWorkflow("w", 0.0, (SimCall("c", 1.0, delay_s=-1.0),)),), "delay_s"),
        ((SimWorkflow("w", 0.0, (SimCall("c", 1.0, (0,)),)),), "before their children"),
    ],
)
def test_an_unusable_workload_is_refused_by_name(flows, words):
    with pytest.raises(BadInput, match=words):
        Workload(flows)


def test_capacity_of_servers_is_their_speed():
    servers = cluster(ReplicaSpec("r", slots=2, service=EngineConstants(0.01)), [1.0, 0.5])
    assert capacity(servers, [ONE]).tokens_per_s == {"model": pytest.approx(300.0)}


def test_het_and_hom_clusters_have_equal_total_speed():
    assert sum(het_speeds(12)) == pytest.approx(sum(hom_speeds(12)))
    assert sorted(set(het_speeds(12))) == [0.35, 0.6, 1.0]


def test_capacity_of_an_engine_is_that_of_full_slots():
    service = EngineConstants(0.015, 0.0005, 1.5e-7, 5e-5)
    engine = cluster(ReplicaSpec("r", batched=True, slots=8, service=service), [1.0])
    flows = [SimWorkflow(f"w{i}", 0.0, (SimCall("c", t, prompt_tokens=100),)) for i, t in enumerate((100.0, 300.0))]
    # per token of a full batch: decode shared by 8, and the prompt's share of the stall; the mean context is the
    # length-weighted one, 100 + (100^2 + 300^2) / 2 / 400
    decode = (0.015 + 8 * 0.0005 + 1.5e-7 * 8 * (100 + 125)) / 8
    expected = 1 / (decode * (199 / 200) + 100 * 5e-5 / 200)
    assert capacity(engine, flows).tokens_per_s["model"] == pytest.approx(expected, rel=0.03)


def test_capacity_of_an_engine_short_of_kv_is_less_and_needs_no_slots():
    service = EngineConstants(0.015, 0.0005, 1.5e-7, 5e-5)
    flows = [SimWorkflow("w", 0.0, (SimCall("c", 200.0, prompt_tokens=800),))]

    def rate(slots, kv):
        spec = ReplicaSpec("r", batched=True, slots=slots, service=service, kv_capacity_tokens=kv)
        return capacity(cluster(spec, [1.0]), flows).tokens_per_s["model"]

    assert rate(32, 4000) == pytest.approx(rate(64, 4000), rel=0.01)
    assert rate(32, 4000) < 0.5 * rate(32, 100_000)


def test_a_load_of_one_offers_exactly_the_capacity_of_the_busiest_model():
    calls = (SimCall("a", 3.0, model="x"), SimCall("b", 5.0, (0,), model="y"))
    specs = (ReplicaSpec("x0", model="x"), ReplicaSpec("y0", model="y"), ReplicaSpec("y1", model="y"))
    flows = [SimWorkflow(f"w{i}", 0.0, calls) for i in range(100)]
    workload = at_load(flows, 0.5, capacity(Cluster(specs), flows), poisson, np.random.default_rng(5))
    assert workload.workflows[-1].arrival_s == pytest.approx(100 * 3.0 / 0.5)


def test_a_model_without_capacity_is_named():
    with pytest.raises(BadInput, match="other"):
        capacity(cluster(ReplicaSpec("r"), [1.0]), [ONE]).workflows_per_s(
            [SimWorkflow("w", 0.0, (SimCall("c", 1.0, model="other"),))]
        )

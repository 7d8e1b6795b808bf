"""The monitor tells a change of one group soon, is silent while nothing but the mix changes, and merges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.drift import Alarm, DriftMonitor, Group, Reference, group_of
from swarmx.drift.evidence import BETS, BLOCK, Block, Evidence, window_of
from swarmx.drift.monitor import Counter
from swarmx.drift.reference import ENOUGH, Ranks, cell
from swarmx.drift.scores import MEAN, place_of, scores_of
from swarmx.drift.transport import packed, unpacked
from swarmx.drift.window import spearman
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import CallRecord

NORMAL = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
Row = tuple[Group, QuantileGrid, float]


def rows(
    rng: np.random.Generator, count: int, sigma: float = 0.8, kinds: int = 1, slow: float = 1.0, heavy: bool = False
) -> Iterator[Row]:
    """Calls whose lognormal is predicted rightly; those of the first kind become `slow` times as long.

    heavy : the logarithms are Student's with 1.5 degrees of freedom, so that neither lengths nor losses have a mean
    """
    for _ in range(count):
        kind = int(rng.integers(kinds))
        middle = math.exp(rng.normal(5, 0.6))
        noise = float(rng.standard_t(1.5)) if heavy else rng.normal()
        observed = middle * math.exp(min(sigma * noise, 500.0)) * (slow if kind == 0 else 1.0)
        yield (f"kind {kind}", "m", "d"), QuantileGrid(LEVELS, middle * np.exp(sigma * NORMAL)), observed


def feed(monitor: DriftMonitor, calls: Iterator[Row], start_s: float = 0.0) -> list[Alarm]:
    found = [monitor.observe(*call, start_s + i) for i, call in enumerate(calls)]
    return [alarm for alarm in found if alarm is not None]


@pytest.mark.parametrize("reference_rows", [30, 1000])
@pytest.mark.parametrize("sigma", [0.5, 0.8, 1.2])
def test_a_doubling_of_one_group_is_told_within_200_of_its_records(sigma: float, reference_rows: int) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor(Reference.from_rows(rows(rng, 2 * reference_rows, sigma, kinds=2)))
        assert feed(monitor, rows(rng, 600, sigma, kinds=2)) == []
        alarms = feed(monitor, rows(rng, 400, sigma, kinds=2, slow=2.0), 600.0)  # about 200 of the slow kind
        assert alarms
        assert alarms[0].group[0] in ("kind 0", "*")
        assert alarms[0].loss > alarms[0].reference_loss


@pytest.mark.parametrize("seed", range(3))
def test_a_doubling_is_told_within_400_records_where_lengths_spread_over_two_e_foldings(seed: int) -> None:
    """A factor of two is .35 of their standard deviation: each record says .06 nats, and 14 are asked for."""
    rng = np.random.default_rng(seed)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 1000, 2.0)))
    assert feed(monitor, rows(rng, 600, 2.0)) == []
    assert feed(monitor, rows(rng, 400, 2.0, slow=2.0), 600.0)


@pytest.mark.slow
@pytest.mark.parametrize(("reference_rows", "heavy"), [(25, True), (25, False), (500, True)])
def test_at_most_one_false_alarm_in_100_000_stationary_records(reference_rows: int, heavy: bool) -> None:
    """Asked for 20 per 100k: in 20,000 records at most 4 are expected; a Poisson variable of mean 4 exceeds 10 with
    probability 0.003. The threshold grows with 1 / rate, so the law is the same at 1 per 100k, see the benchmark."""
    rng = np.random.default_rng(7)
    reference = Reference.from_rows(rows(rng, 5 * reference_rows, kinds=5, heavy=heavy))
    monitor = DriftMonitor(reference, false_alarms_per_100k=20, material=1.0)
    assert len(feed(monitor, rows(rng, 20_000, kinds=5, heavy=heavy))) <= 10


def test_a_change_of_mix_alone_raises_no_alarm() -> None:
    """Two kinds whose predictions are wrong in different ways, first in equal shares, then one of them alone."""
    rng = np.random.default_rng(1)

    def calls(count: int, share: float) -> Iterator[Row]:
        for group, grid, observed in rows(rng, count):
            first = rng.random() < share
            yield ((f"kind {int(first)}", *group[1:]), grid, observed * (4.0 if first else 0.5))

    monitor = DriftMonitor(Reference.from_rows(calls(1000, 0.5)))
    assert feed(monitor, calls(1500, 0.05)) == []
    assert feed(monitor, calls(1500, 0.95)) == []


def test_longer_prompts_rightly_predicted_are_no_change() -> None:
    rng = np.random.default_rng(2)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 500)))
    calls = ((group, grid.scaled(5.0), observed * 5.0) for group, grid, observed in rows(rng, 2000))
    assert feed(monitor, calls) == []


def test_a_device_that_slows_down_is_told_from_all_its_types_together() -> None:
    rng = np.random.default_rng(3)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 2000, kinds=20)))
    slow = ((group, grid, observed * 2) for group, grid, observed in rows(rng, 120, kinds=20))
    assert [alarm.group for alarm in feed(monitor, slow)] == [("*", "m", "d")]


def test_an_unknown_group_borrows_the_pools_losses() -> None:
    rng = np.random.default_rng(4)
    reference = Reference.from_rows(rows(rng, 500))
    borrowed = reference.of(("new", "m", "d"))
    assert borrowed.borrowed
    assert sum(borrowed.losses.counts) == pytest.approx(ENOUGH)
    monitor = DriftMonitor(reference)
    fresh = ((("new", "m", "d"), grid, observed * 20) for _, grid, observed in rows(rng, 60))
    assert feed(monitor, fresh)
    mild = DriftMonitor(reference)
    alike = ((("new", "m", "d"), grid, observed) for _, grid, observed in rows(rng, 1000))
    assert feed(mild, alike) == []


def test_after_an_alarm_there_is_quiet_for_one_window() -> None:
    rng = np.random.default_rng(5)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 1000)))
    alarms = feed(monitor, rows(rng, monitor.window, slow=4.0))
    assert len(alarms) == 1
    assert monitor.alarms_raised == 1


def test_figures_show_coverage_bias_and_rank_correlation() -> None:
    rng = np.random.default_rng(6)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 1000, 0.3)))
    feed(monitor, rows(rng, 500, 0.3))
    (figures,) = monitor.snapshot().values()
    assert figures.records == 500
    assert figures.bias == pytest.approx(0.0, abs=4 * 1.25 * 0.3 / math.sqrt(500))
    noise = 4 * np.sqrt(LEVELS * (1 - LEVELS) / 500) + 1e-9
    assert np.all(np.abs(np.array(figures.coverage) - LEVELS) <= noise)
    assert 0.8 < figures.rank_correlation <= 1.0  # sd of the predicted logs 0.6, of the noise 0.3: 0.6 / 0.67 = 0.89
    assert figures.loss == pytest.approx(figures.reference_loss, rel=0.3)
    assert figures.loss_p50 < figures.loss_p95


def test_rank_correlation_of_reversed_predictions_is_minus_one() -> None:
    assert spearman(np.diag([5] * 8)) == pytest.approx(1.0)
    assert spearman(np.diag([5] * 8)[::-1]) == pytest.approx(-1.0)
    assert spearman(np.zeros((8, 8), np.int64)) == 0.0


def test_observations_that_are_no_lengths_are_counted_and_ignored() -> None:
    rng = np.random.default_rng(8)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 100)))
    for bad in (math.nan, math.inf, -1.0):
        assert monitor.observe(("kind 0", "m", "d"), QuantileGrid.point(3.0), bad, 0.0) is None
    assert (monitor.unusable, monitor.records) == (3, 0)


def test_memory_is_bounded_by_the_number_of_groups() -> None:
    rng = np.random.default_rng(9)
    monitor = DriftMonitor(Reference.from_rows(rows(rng, 100)), most_groups=3)
    feed(monitor, rows(rng, 200, kinds=10))
    assert len(monitor.snapshot()) == 3


# ---- reference ----


def test_a_reference_survives_json() -> None:
    reference = Reference.from_rows(rows(np.random.default_rng(0), 300, kinds=3))
    assert Reference.from_json(json.loads(json.dumps(reference.to_json()))) == reference


@pytest.mark.parametrize("spoil", ["schema", "pool", "counts"])
def test_a_spoiled_reference_is_refused(spoil: str) -> None:
    data = Reference.from_rows(rows(np.random.default_rng(0), 50)).to_json()
    if spoil == "schema":
        data["schema"] = 99
    elif spoil == "pool":
        del data["pool"]
    else:
        data["pool"]["losses"]["counts"][0] = math.nan
    with pytest.raises((KeyError, ValueError)):
        Reference.from_json(data)


def test_a_reference_needs_rows() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Reference.from_rows([])


def test_a_record_is_watched_under_its_type_else_its_prompt_group() -> None:
    record = CallRecord("c", "m", 0.0, "ok", type=None, prompt_group="g", device="H100")
    assert group_of(record) == ("g", "m", "H100")


# ---- laws ----


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0, 1e6))
def test_ranks_count_every_row_once(sample: list[float], value: float) -> None:
    ranks = Ranks.of(np.array(sample))
    assert sum(ranks.counts) == len(sample)
    at = cell(ranks.edges, value)
    below = sum(ranks.counts[:at])
    assert below <= sum(x < value for x in sample) + (0 if at % 2 else ranks.counts[at])
    if at % 2:  # an order statistic itself
        assert (below, ranks.counts[at]) == (sum(x < value for x in sample), sample.count(value))


def test_p_values_of_a_thin_reference_are_uniform() -> None:
    """Mean of 4,000 uniform numbers: sd 0.29 / sqrt(4000) = 0.0046; the share below 0.05 has sd 0.0034."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(100):
        counter = Counter(Ranks.of(rng.standard_cauchy(25)))
        found += [counter.rank(float(x), rng) for x in rng.standard_cauchy(40)]
    assert np.mean(found) == pytest.approx(0.5, abs=4 * 0.0046)
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=4 * 0.0034)


GRIDS = st.lists(st.floats(-1e300, 1e300), min_size=len(LEVELS), max_size=len(LEVELS)).map(
    lambda values: QuantileGrid(LEVELS, np.sort(np.array(values)))
)


@given(GRIDS, st.floats(0, 1e300))
def test_scores_are_finite_for_any_grid(grid: QuantileGrid, observed: float) -> None:
    found = scores_of(grid.values, observed)
    assert all(map(math.isfinite, (found.loss, found.place, found.log_ratio, found.predicted)))
    assert 0 <= found.place <= 1


@given(st.lists(st.floats(0.1, 1e6), min_size=len(LEVELS), max_size=len(LEVELS)), st.floats(0, 1e7), st.floats(0, 1e7))
def test_places_do_not_decrease_with_the_observation(values: list[float], a: float, b: float) -> None:
    grid = sorted(values)
    low, high = sorted((a, b))
    assert place_of(grid, low) <= place_of(grid, high) + 1e-12


def test_the_smallest_observation_has_a_place() -> None:
    assert 0 <= place_of([10.0 + level for level in LEVELS], 5e-324) < LEVELS[0]


def test_the_weights_of_the_mean_are_those_of_the_grid() -> None:
    grid = QuantileGrid(LEVELS, np.sort(np.random.default_rng(0).lognormal(5, 1, len(LEVELS))))
    assert grid.values @ MEAN == pytest.approx(float(grid.mean()))


BLOCKS = st.lists(
    st.builds(
        Block,
        st.floats(0, 1e6),
        st.just(8),
        st.tuples(*[st.floats(-50, 0)] * 3),
        st.tuples(*[st.floats(-50, 50)] * 2),
        st.floats(0, 100),
        st.floats(-9, 9),
    ),
    max_size=12,
)


@given(BLOCKS, BLOCKS, BLOCKS)
def test_evidence_merges_in_any_order(a: list[Block], b: list[Block], c: list[Block]) -> None:
    one, two, three = (Evidence(80, blocks=sorted(blocks)[-10:]) for blocks in (a, b, c))
    assert one.merged(two).blocks == two.merged(one).blocks
    assert one.merged(two).merged(three).blocks == one.merged(two.merged(three)).blocks


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=60, max_size=200), st.integers(0, 9))
def test_monitors_merge_in_any_order(routers: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference = Reference.from_rows(rows(rng, 60, kinds=2))
    parts = [DriftMonitor(reference, seed=i) for i in range(3)]
    for i, (router, call) in enumerate(zip(routers, rows(rng, len(routers), kinds=2), strict=True)):
        parts[router].observe(*call, float(i))
    a, b, c = parts
    left, right, turned = a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)
    assert left.records == right.records == turned.records == len(routers)
    for other in (right, turned):
        for group, figures in left.snapshot().items():
            same = other.snapshot()[group]
            assert (figures.records, figures.coverage) == (same.records, same.coverage)
            assert figures.loss == pytest.approx(same.loss)
            assert figures.rank_correlation == pytest.approx(same.rank_correlation)
            assert figures.bias == pytest.approx(same.bias, abs=0.5)  # KLL of k = 200: rank error below 1.7 %


def test_merged_routers_tell_what_each_alone_has_not_yet_seen() -> None:
    """Four routers, each with a quarter of the slow calls: together their evidence is enough, alone it is not."""
    rng = np.random.default_rng(12)
    reference = Reference.from_rows(rows(rng, 1000))
    routers = [DriftMonitor(reference, seed=i) for i in range(4)]
    for i, call in enumerate(rows(rng, 96, slow=2.0)):
        assert routers[i % 4].observe(*call, float(i)) is None
    merged = routers[0].merge(routers[1]).merge(routers[2]).merge(routers[3])
    alarms = merged.alarms(96.0)
    assert alarms
    assert alarms[0].n <= 96


def test_a_monitor_travels_as_json() -> None:
    rng = np.random.default_rng(14)
    reference = Reference.from_rows(rows(rng, 200, kinds=2))
    monitor = DriftMonitor(reference)
    feed(monitor, rows(rng, 160, kinds=2))
    arrived = unpacked(reference, json.loads(json.dumps(packed(monitor))))
    assert arrived.snapshot() == monitor.snapshot()
    slow = list(rows(rng, 120, kinds=2, slow=4.0))
    told = [[a.group for a in feed(one, iter(slow), 160.0)] for one in (monitor, arrived)]
    assert all(("kind 0", "m", "d") in groups for groups in told)  # ties are broken anew, and open blocks stay behind
    with pytest.raises((KeyError, ValueError)):
        unpacked(Reference.from_rows(rows(rng, 21)), packed(monitor))


def test_only_monitors_of_one_reference_merge() -> None:
    rng = np.random.default_rng(13)
    with pytest.raises(ValueError, match="same reference"):
        DriftMonitor(Reference.from_rows(rows(rng, 30))).merge(DriftMonitor(Reference.from_rows(rows(rng, 30))))


def test_a_bet_has_mean_one_under_the_uniform_law() -> None:
    """Integrated over z, of which p is the upper tail."""
    z = np.linspace(-9, 9, 20_001)
    p = np.array([math.erfc(x / math.sqrt(2)) / 2 for x in z])
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    for bet in BETS:
        worth = np.exp(bet @ (np.ones_like(z), np.log(p), z))
        assert np.trapezoid(worth * density, z) == pytest.approx(1.0, abs=1e-4)


def test_evidence_of_a_block_is_the_mean_of_its_bets() -> None:
    """By hand, for one block: R is that mean times the places at which a change may have begun, its records."""
    rng, evidence = np.random.default_rng(15), Evidence(80)
    told = rng.random((BLOCK, 2))
    for p_loss, p_place in told:
        evidence.add(0.0, p_loss, p_place, 1.0, 0.0)
    worths = []
    for p in (told[:, 0], told[:, 1], 1 - told[:, 1]):
        z = [-NormalDist().inv_cdf(float(x)) for x in p]
        worths += [math.exp(sum(bet @ np.array((np.ones(BLOCK), np.log(p), z)))) for bet in BETS]
    found = evidence.look()
    assert found is not None
    assert found.statistic == pytest.approx(math.log(BLOCK * np.mean(worths)))


def test_a_rarer_false_alarm_asks_for_a_longer_window() -> None:
    assert window_of(2e6) > window_of(2e5) > window_of(2e4)
    with pytest.raises(ValueError, match="positive"):
        DriftMonitor(Reference.from_rows(rows(np.random.default_rng(0), 30)), false_alarms_per_100k=0)


@given(BLOCKS, BLOCKS, st.lists(st.floats(1e-9, 1 - 1e-9), max_size=4 * BLOCK))
def test_a_look_finds_no_more_than_the_cheap_bound(a: list[Block], b: list[Block], later: list[float]) -> None:
    """After a merge that drops blocks, and after records that drop more."""
    evidence = Evidence(80, blocks=sorted(a)[-10:]).merged(Evidence(80, blocks=sorted(b)[-10:]))
    for p in (None, *later):
        if p is not None:
            evidence.add(1e7, p, 1 - p, 1.0, 0.0)
        bound, found = evidence.at_most(), evidence.look()
        assert found is None or found.statistic <= bound + 1e-6

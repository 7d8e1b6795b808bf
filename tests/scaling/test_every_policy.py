"""What every scaling policy keeps, whatever it does otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scaling_worlds import PERIOD_S, TRIED, Pool, course, scaler

from swarmx.scaling import SCALERS, scaling_preset
from swarmx.scaling.history import History

SETTLED_S = 2400.0  # the slowest of them lowers a pool by one replica in 120 s


@pytest.mark.parametrize("name", TRIED)
def test_more_load_never_asks_for_fewer_replicas(name: str) -> None:
    policy, _ = scaling_preset(name)
    wishes = []
    for load in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0):
        pool, history = Pool(6), History()
        for step in range(40):
            sample = pool.sample(load, step * PERIOD_S)
            history.add(sample)
        want = policy.wants(sample, history)
        assert want is not None
        wishes.append(want.replicas)
    assert wishes == sorted(wishes)
    assert wishes[-1] > wishes[0]


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("load", [0.4, 3.3, 7.0])
def test_a_constant_load_settles_and_stays(name: str, load: float) -> None:
    targets = [n for t, n in course(scaler(name), lambda t: load, SETTLED_S + 1200.0) if t >= SETTLED_S]
    assert len(set(targets)) == 1
    assert targets[0] >= load - 1e-9


@pytest.mark.parametrize("name", TRIED)
def test_an_idle_pool_reaches_its_minimum(name: str) -> None:
    targets = [n for _, n in course(scaler(name), lambda t: 6.0 if t < 300 else 0.0, 300 + SETTLED_S)]
    assert max(targets) > 1
    assert targets[-1] == 1


@pytest.mark.parametrize("name", TRIED)
def test_a_restart_from_a_snapshot_changes_nothing(name: str) -> None:
    def load(t: float) -> float:
        return 2.0 + 6.0 * (400 <= t < 900)

    undisturbed = list(course(scaler(name), load, 1500.0))
    first, pool = scaler(name), Pool()
    before = list(course(first, load, 600.0, pool))
    second = replace(scaler(name), memory=first.snapshot())
    after = list(course(second, load, 900.0, pool, start_s=600.0))
    assert before + after == undisturbed


@pytest.mark.parametrize("name", TRIED)
def test_a_restart_without_memory_takes_no_replica_away_at_once(name: str) -> None:
    pool = Pool(8)
    targets = list(course(scaler(name), lambda t: 1.0, 60.0, pool))
    delay = SCALERS[name].bounds.down_delay_s
    assert all(n >= 8 for t, n in targets if t < delay)


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
def test_a_clock_jump_moves_no_replica(name: str, jump_s: float) -> None:
    one, pool = scaler(name), Pool()
    settled = [n for _, n in course(one, lambda t: 4.0, SETTLED_S, pool)][-1]
    later = [n for _, n in course(one, lambda t: 4.0, 600.0, pool, start_s=SETTLED_S + jump_s)]
    assert set(later) == {settled}


@pytest.mark.parametrize("name", TRIED)
def test_a_duplicate_or_late_sample_decides_nothing(name: str) -> None:
    one, pool = scaler(name), Pool()
    list(course(one, lambda t: 4.0, 600.0, pool))
    sample = pool.sample(4.0, 600.0)
    assert len(one.step([sample])) == 1
    assert one.step([sample]) == []
    assert one.step([replace(sample, observed_s=590.0)]) == []


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_metrics_hold_the_pool(name: str, missing: float | None) -> None:
    one, pool = scaler(name), Pool()
    list(course(one, lambda t: 4.0, 600.0, pool))
    here = len(pool.ids)
    for step in range(200):
        blind = replace(
            pool.sample(4.0, 600.0 + PERIOD_S * step),
            waiting=missing, running=missing, arrived=missing, finished=missing, service_s=missing,
            latency_ratio=missing, judged=missing, kept=missing,
        )  # fmt: skip
        blind = replace(blind, replicas=tuple(replace(v, latency_ratio=missing) for v in blind.replicas))
        (scale,) = one.step([blind])
        assert scale.target == here
        assert not scale.is_change


@pytest.mark.parametrize("name", TRIED)
def test_a_gap_of_samples_is_survived(name: str) -> None:
    one, pool = scaler(name), Pool()
    settled = [n for _, n in course(one, lambda t: 4.0, SETTLED_S, pool)][-1]
    later = [n for _, n in course(one, lambda t: 4.0, 600.0, pool, start_s=SETTLED_S + 500.0)]
    assert later[-1] == settled
    assert min(later) >= settled - 1


@pytest.mark.parametrize("name", TRIED)
def test_choosing_changes_nothing(name: str) -> None:
    policy, _ = scaling_preset(name)
    pool, history = Pool(3), History()
    for step in range(30):
        sample = pool.sample(4.0, step * PERIOD_S)
        history.add(sample)
    rows = list(history.rows)
    assert policy.wants(sample, history) == policy.wants(sample, history)
    assert list(history.rows) == rows

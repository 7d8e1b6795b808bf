"""The service model finds what it is shown."""

import numpy as np
import pytest

from swarmx.engine import EngineConstants, OnlineFit, Segment, fit_segments


def segments(truth: EngineConstants, count: int, rng: np.random.Generator, speed: float = 1.0) -> list[Segment]:
    found = []
    for _ in range(count):
        tokens, batch, kv = rng.lognormal(4, 1), rng.uniform(1, 32), rng.uniform(0, 60_000)
        prefilled = float(rng.integers(0, 3000))
        seconds = (tokens * float(truth.tau(batch, kv)) + truth.p * prefilled) / speed
        found.append(Segment(seconds, tokens, batch, kv, prefilled))
    return found


TRUTH = EngineConstants(a=0.015, b=0.0005, c=1.5e-7, p=5e-5)


def test_constants_are_recovered_from_clean_segments() -> None:
    fitted = fit_segments(segments(TRUTH, 2000, np.random.default_rng(0)))
    for found, true in zip(fitted.as_tuple(), TRUTH.as_tuple(), strict=True):
        assert found == pytest.approx(true, rel=0.05)


def test_a_batch_that_never_varies_goes_to_a() -> None:
    rng = np.random.default_rng(1)
    fitted = fit_segments([Segment(0.05 * x, x, 1.0, 0.0, 0.0) for x in rng.lognormal(4, 1, 300)])
    assert fitted.a == pytest.approx(0.05, rel=1e-6)
    assert fitted.b == 0


def test_segments_without_work_identify_nothing() -> None:
    with pytest.raises(ValueError, match="identify"):
        fit_segments([Segment(1.0, 0.0, 1.0, 0.0, 0.0)])


def test_nobody_is_fitted_before_a_hundred_segments_and_the_pool_lends_to_newcomers() -> None:
    rng, fit = np.random.default_rng(2), OnlineFit()
    fit.place("r0", "old", 1.0)
    fit.place("r1", "new", 0.5)
    for segment in segments(TRUTH, 99, rng):
        fit.observe("r0", segment)
    assert fit.constants_of("old") is None
    for segment in segments(TRUTH, 50, rng):
        fit.observe("r0", segment)
    old, new = fit.constants_of("old"), fit.constants_of("new")
    assert old is not None
    assert new is not None
    assert float(new.tau(8, 2e4)) == pytest.approx(2 * float(old.tau(8, 2e4)), rel=0.05)


def test_a_few_segments_of_its_own_correct_a_wrong_configured_speed() -> None:
    rng, fit = np.random.default_rng(5), OnlineFit()
    fit.place("r0", "known", 1.0)
    fit.place("r1", "slow", 1.0)  # in truth a quarter
    for segment in segments(TRUTH, 300, rng):
        fit.observe("r0", segment)
    for segment in segments(TRUTH, 60, rng, speed=0.25):
        fit.observe("r1", segment)
    for segment in segments(TRUTH, 100, rng):
        fit.observe("r0", segment)
    slow = fit.constants_of("slow")
    assert slow is not None
    assert float(slow.tau(8, 2e4)) / fit.speed("r1") == pytest.approx(4 * float(TRUTH.tau(8, 2e4)), rel=0.2)


def test_a_hidden_slowdown_of_one_replica_shows_within_thirty_calls() -> None:
    rng, fit = np.random.default_rng(3), OnlineFit()
    for name in ("r0", "r1"):
        fit.place(name, "gpu", 1.0)
        for segment in segments(TRUTH, 400, rng):
            fit.observe(name, segment)
    assert fit.speed("r0") == pytest.approx(1.0, abs=0.1)
    for segment in segments(TRUTH, 30, rng, speed=0.25):
        fit.observe("r0", segment)
    assert fit.speed("r0") / fit.speed("r1") == pytest.approx(0.25, rel=0.25)


@pytest.mark.parametrize("calls", [60, 800])
def test_known_constants_count_at_once_and_give_way_to_what_is_seen(calls: int) -> None:
    wrong = EngineConstants(*(3 * value for value in TRUTH.as_tuple()))
    fit = OnlineFit({"gpu": wrong})
    fit.place("r0", "gpu", 1.0)
    fit.place("r1", "gpu", 1.0)
    assert fit.constants_of("gpu") == wrong
    rng = np.random.default_rng(4)
    for pair in zip(segments(TRUTH, calls, rng), segments(TRUTH, calls, rng), strict=True):
        for name, segment in zip(("r0", "r1"), pair, strict=True):
            fit.observe(name, segment)
    found = fit.constants_at("r0")
    assert found is not None
    assert float(found.tau(8, 2e4)) == pytest.approx(float(TRUTH.tau(8, 2e4)), rel=0.25)

"""Constants come back from measurements that were made with them."""

from pathlib import Path

import numpy as np
import pytest

from swarmx.errors import BadInput
from swarmx.sim.profiles import Stage, fit_load_curve, fit_nonnegative, load_curves, splitwise_profiles

DATA = Path(__file__).parents[3] / "shared" / "data" / "device_profiles"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no published device profiles in {DATA}")


def test_nonnegative_fit_finds_exact_weights_and_drops_what_would_be_negative():
    rng = np.random.default_rng(1)
    work = rng.uniform(0.1, 1.0, (30, 3))
    weights, error = fit_nonnegative(work, work @ [2.0, 0.0, 0.5])
    assert weights == pytest.approx([2.0, 0.0, 0.5], abs=1e-9)
    assert error < 1e-9
    weights, _ = fit_nonnegative(work, work @ [2.0, -0.2, 0.5])
    assert min(weights) >= 0


def a_stage(rate, a=0.007, b=5e-5, p=1e-5, base=0.02, prompt=200.0, output=101.0, achieved=1.0):
    """A stage in exact balance: token_s = a + b·n + p·rate·prompt·token_s, n = rate·100·token_s."""
    token = a / (1 - b * rate * 100 - p * rate * prompt)
    first = base + p * prompt
    latency = first + 100 * token
    return Stage(
        rate,
        rate * achieved,
        (latency,) * 3,
        (first,) * 3,
        latency,
        first,
        prompt,
        output,
        ((0.0, output), (1.0, output)),
    )


def test_a_load_curve_gives_its_constants_back():
    profile = fit_load_curve([a_stage(r) for r in (1.0, 30.0, 60.0, 90.0)] + [a_stage(300.0, achieved=0.5)])
    # n and the prompts' stall grow together when lengths do not vary: their sum is known, not their shares
    a, b, c, p = profile.constants.as_tuple()
    assert a == pytest.approx(0.007, rel=1e-6)
    assert b * 100 + p * 200 == pytest.approx(5e-5 * 100 + 1e-5 * 200, rel=1e-6)
    assert c == 0
    assert profile.points == 4


def test_a_load_curve_that_is_mostly_overload_is_refused():
    with pytest.raises(BadInput, match="three stages"):
        fit_load_curve([a_stage(1.0), a_stage(2.0), a_stage(3.0, achieved=0.9)])


@needs_data
def test_token_times_of_published_gpu_tables_fit_within_a_few_percent():
    profiles = splitwise_profiles(DATA / "splitwise_perf_model.parquet")
    assert len(profiles) >= 7
    for profile in profiles.values():
        assert profile.token_error < 0.05
        assert profile.constants.a > 0
    a100 = profiles["llama2-70b", "a100-80gb", 4]
    h100 = profiles["llama2-70b", "h100-80gb", 4]
    assert h100.constants.a < a100.constants.a
    assert h100.constants.p < a100.constants.p


@needs_data
def test_published_load_curves_are_read_and_fit():
    curves = load_curves(DATA / "inference_perf_load_curves.parquet")
    assert set(map(len, curves.values())) == {7}
    profile = fit_load_curve(curves["vllm+quantization"])
    assert profile.token_error < 0.02
    assert 0.005 < profile.constants.a < 0.01


@needs_data
def test_a_table_with_other_columns_is_named():
    with pytest.raises(BadInput, match="no column"):
        splitwise_profiles(DATA / "inference_perf_load_curves.parquet")

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swarmx.predict.borrow import MEDIAN, USUAL_SD, spread, widened
from swarmx.predict.fit import FitConfig
from swarmx.predict.runtime import Predictor
from swarmx.predict.train import TrainConfig, train
from swarmx.quantiles import LEVELS
from swarmx.types import Call, CallRecord

MakeLog = Callable[..., list[CallRecord]]
steps = arrays(np.float64, (4, len(LEVELS)), elements=st.floats(0, 3))


@given(steps, st.floats(0, 2))
def test_borrowing_keeps_the_median_and_the_order_and_never_sharpens(gaps: np.ndarray, sd: float) -> None:
    logs = gaps.cumsum(axis=1)
    out = widened(logs, sd)
    np.testing.assert_allclose(out[:, MEDIAN], logs[:, MEDIAN])
    assert np.all(np.diff(out, axis=1) >= -1e-9)
    assert np.all(np.abs(out - out[:, [MEDIAN]]) >= np.abs(logs - logs[:, [MEDIAN]]) - 1e-9)


def test_widened_normals_are_normals_of_the_summed_variance() -> None:
    from statistics import NormalDist

    sigmas = np.array([NormalDist().inv_cdf(float(level)) for level in LEVELS])
    np.testing.assert_allclose(widened(2 + 0.3 * sigmas[None], 0.4), 2 + 0.5 * sigmas[None], atol=1e-12)


def test_two_models_alike_do_not_promise_a_third() -> None:
    assert spread([0.0, 0.0]) == pytest.approx(USUAL_SD * np.sqrt(3 / 4))
    drawn = np.random.default_rng(0).normal(0, 1.2, 400)  # 400 draws: the sd is known to 4 %
    assert spread(drawn) == pytest.approx(1.2, rel=0.1)


@pytest.mark.slow
def test_an_unknown_model_borrows_wider_grids_and_says_so(tmp_path: Path, make_log: MakeLog) -> None:
    log = [replace(r, model=("m", "n")[i % 2], output_tokens=r.output_tokens * (1 + 2 * (i % 2)))
           for i, r in enumerate(make_log(300))]  # fmt: skip
    config = TrainConfig(fit=FitConfig(epochs=2, landmarks=16, count_landmarks=16), plots=False)
    train(log, tmp_path / "m", config)
    predictor = Predictor.load(tmp_path / "m")
    short, long, new = predictor.predict(
        [Call(id=m, model=m, arrival_s=0.0, prompt="Write a long story about tea.") for m in ("m", "n", "other")]
    )
    assert (short.source, long.source, new.source) == ("neural", "neural", "borrowed")
    width = [np.log1p(p.tokens.at(0.95)) - np.log1p(p.tokens.at(0.5)) for p in (short, long, new)]
    assert width[2] > max(width[:2])
    assert short.tokens.at(0.5) < new.tokens.at(0.5) < long.tokens.at(0.5)
    between = 0.5 * (np.log1p(short.tokens.at(0.5)) + np.log1p(long.tokens.at(0.5)))
    apart = np.log1p(long.tokens.at(0.5)) - np.log1p(short.tokens.at(0.5))
    assert abs(np.log1p(new.tokens.at(0.5)) - between) < apart / 4, "half of the log is of each"


@pytest.mark.slow
def test_what_one_model_has_taught_is_told_under_any_name(tmp_path: Path, make_log: MakeLog) -> None:
    """A pool is often called otherwise than the model of the log; nothing is known of how another one would differ."""
    train(make_log(300), tmp_path / "m", TrainConfig(fit=FitConfig(epochs=4, hidden=16), plots=False))
    predictor = Predictor.load(tmp_path / "m")
    prompts = [f"Write a long story about {word}." for word in ("tea", "rivers", "bees")]
    own, other = (
        predictor.predict([Call(f"{name}{i}", name, 0.0, prompt=prompt) for i, prompt in enumerate(prompts)])
        for name in (make_log(1)[0].model, "another-name")
    )
    for a, b in zip(own, other, strict=True):
        assert b.source == "neural"
        assert b.tokens.values.tolist() == a.tokens.values.tolist()

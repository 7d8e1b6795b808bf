from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swarmx.predict.borrow import FEW, MEDIAN, USUAL_SD, offsets, spread, widened
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


def test_what_a_model_lies_off_is_believed_the_more_the_more_rows_say_so() -> None:
    models = np.repeat([1, 2, 3], [10, 1000, 30])
    gaps = np.repeat([0.5, -0.3, 0.0], [10, 1000, 30])
    found = offsets(gaps, models, 4, np.ones(len(gaps)))
    np.testing.assert_allclose(found, [0, 0.5 * 10 / (10 + FEW), -0.3 * 1000 / (1000 + FEW), 0, 0])
    alike = offsets(gaps, models, 4, np.where(models == 1, 0.1, 1.0))  # ten runs of one prompt are one
    assert alike[1] == pytest.approx(0.5 * 1 / (1 + FEW))


@pytest.mark.slow
def test_a_model_with_few_rows_is_not_left_at_the_others_lengths(tmp_path: Path, make_log: MakeLog) -> None:
    log = [replace(r, model="n" if i % 12 == 0 else "m", output_tokens=r.output_tokens * (6 if i % 12 == 0 else 1))
           for i, r in enumerate(make_log(480))]  # fmt: skip
    config = TrainConfig(fit=FitConfig(epochs=2, landmarks=16, count_landmarks=16), plots=False)
    train(log, tmp_path / "m", config)
    predictor = Predictor.load(tmp_path / "m")
    asked = [replace(record, model="n") for record in make_log(200, seed=5)]
    medians = predictor.grids(asked).of("tokens")[:, MEDIAN]
    lies_off = np.median(np.log1p([6.0 * record.output_tokens for record in asked]) - np.log1p(medians))
    assert abs(lies_off) < 0.25 * np.log(6), "32 rows of it are learned from"
    moved = predictor.manifest["model_offset"]["tokens"]
    assert len(moved) == 2 and all(mode[0] == 0 and mode[2] > 0 for mode in moved)


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

"""Predictors of one number per call, and that `psc` alone runs with them."""

from dataclasses import replace

import numpy as np
import pytest

from swarmx.predict.means import MEANS, features_of, out_of_fold_means
from swarmx.sim.suites.cells import QUICK, arms_of, sweep
from swarmx.sim.suites.material import material_of
from swarmx.types import CallRecord


def records(n: int = 240) -> list[CallRecord]:
    """Output is three times the prompt for one type, half of it for the other, up to noise; templates of four rows."""
    rng = np.random.default_rng(0)
    out = []
    for i in range(n):
        kind, prompt = ("long", "short")[i % 2], int(rng.integers(20, 400))
        tokens = int(prompt * (3 if kind == "long" else 0.5) * rng.lognormal(0, 0.1)) + 1
        out.append(
            CallRecord(
                f"c{i}", "m", float(i), "ok", f"w{i // 4}", type=kind, prompt_group=f"g{i // 4}", prompt_tokens=prompt,
                finished_s=i + 1.0, output_tokens=tokens,
            )
        )  # fmt: skip
    return out


@pytest.mark.parametrize("kind", MEANS)
def test_each_kind_explains_calls_of_templates_that_it_has_not_seen(kind: str) -> None:
    rows = records()
    tokens = np.array([row.output_tokens for row in rows])
    means = out_of_fold_means(rows, kind)
    assert means.shape == tokens.shape
    assert np.corrcoef(means, tokens)[0, 1] > 0.8
    assert np.array_equal(means, out_of_fold_means(rows, kind)), "the same seed gives the same numbers"


def test_a_row_is_not_predicted_by_a_model_that_saw_its_template() -> None:
    rows = records()
    odd = [replace(row, output_tokens=50_000) if row.prompt_group == "g7" else row for row in rows]
    seen = np.array([row.prompt_group == "g7" for row in rows])
    before, after = out_of_fold_means(rows, "linear"), out_of_fold_means(odd, "linear")
    assert np.allclose(before[seen], after[seen])
    assert not np.allclose(before[~seen], after[~seen])


def test_features_without_type_or_limit_are_finite() -> None:
    assert np.isfinite(features_of([CallRecord("a", "m", 0.0, "ok")])).all()


def test_psc_alone_runs_with_predictors_of_means() -> None:
    with_means = material_of("made", records(), None, None, means=True)
    assert set(MEANS) < set(with_means.arms)
    assert arms_of("psc", False, with_means.arms) == tuple(MEANS)
    assert not set(MEANS) & set(arms_of("late", True, with_means.arms))
    cells = sweep("headline", "made", ("het",), QUICK.only(["psc", "late"]), with_means.arms)
    assert {c.arm for c in cells if c.policy == "psc"} == set(MEANS)
    assert arms_of("psc", False, material_of("made", records(), None, None).arms) == ("type",)

"""Suites over made-up workloads: regimes, rows and arms; wrong predictors; several routers; the six metrics."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swarmx.errors import BadInput
from swarmx.sim.suites.against_led import METRICS, against_led, violations
from swarmx.sim.suites.batched import BATCHED, JOBS
from swarmx.sim.suites.cells import FULL, LED, QUICK, Cell
from swarmx.sim.suites.core import CORE_SUITES
from swarmx.sim.suites.made import Made, arm_of, ground_of
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.mispredict import ENGINE_ARMS, HUGE_TOKENS, MISPREDICT, arms, wrong_engines
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.paper import PAPER, POOLS, deep_research, text_to_video
from swarmx.sim.suites.prefix import PREFIX, TRACE_BLOCK, TRACES, regimes, trace
from swarmx.sim.suites.routers import ROUTERS, SETUPS
from swarmx.sim.synthetic import Sizes

NOTHING = Material("made", (), {}, (), None, "")
NAMED = {
    *("hom_b32", "hom_b8", "hom_b32_bursty", "hom_kv", "het_b32", "mild_het_b32", "het_b32_bursty", "het_b32_onoff"),
    *("het_b8", "het_kv", "het_single", "hom_single", "het_r4", "het_r48"),
}
TRACE = TRACES / "mooncake_conversation.parquet"


def small(suite: Made, regime: str, policy: str, arm: str | None = None, n: int = 6, seed: int = 0) -> Cell:
    return Cell(suite.name, suite.name, regime, 0.8, policy, arm, seed, n)


@pytest.mark.parametrize("suite", CORE_SUITES.values(), ids=list(CORE_SUITES))
def test_every_suite_serves_every_workflow_in_every_regime(suite: Made) -> None:
    for regime in suite.regimes[:2]:
        policy = suite.short[-1]
        cell = small(suite, regime.name, policy, suite.arms_of(policy, False)[0], n=3)
        found = suite.outcome(NOTHING, cell)
        assert found.workflow[0] == 3
        assert found.no_end == 0


@pytest.mark.parametrize("suite", CORE_SUITES.values(), ids=list(CORE_SUITES))
def test_cells_compare_everything_with_led_on_the_same_arrivals(suite: Made) -> None:
    for plan in (QUICK, FULL):
        cells = suite.cells(NOTHING, plan)
        assert len(set(cells)) == len(cells)
        rows = {(c.regime, c.load, c.seed) for c in cells}
        assert rows == {(c.regime, c.load, c.seed) for c in cells if c.policy == LED}
    one, other = (suite.world(NOTHING, small(suite, suite.regimes[0].name, p)) for p in (LED, suite.short[-1]))
    assert one.workload == other.workload
    assert suite.about
    assert all(np.isfinite(v) and v > 0 for v in suite.settings(NOTHING).values())
    assert pickle.loads(pickle.dumps(suite)).name == suite.name  # cells run in other processes


def test_the_batched_suite_has_the_regimes_that_serving_has() -> None:
    assert {r.name for r in BATCHED.regimes} == NAMED
    quick = BATCHED.cells(NOTHING, QUICK)
    assert {c.regime for c in quick} == NAMED
    assert sum(c.workflows for c in quick) < 0.01 * sum(c.workflows for c in BATCHED.cells(NOTHING, FULL))


def test_asked_policies_replace_the_rows_of_the_suite() -> None:
    cells = BATCHED.cells(NOTHING, QUICK.only(["prequal", "late"]))
    assert {"prequal", "late", LED} <= {c.policy for c in cells}
    assert "push" not in {c.policy for c in cells}


def test_an_unknown_arm_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="calibrated, type, oracle or none"):
        arm_of("perfect", ())


def test_wrong_arms_are_wrong_in_their_own_way() -> None:
    sample = tuple(JOBS[0].draw(30, 3))
    known = arms(sample)
    assert set(MISPREDICT.arms) == {*known, "none", *ENGINE_ARMS}
    first = sample[0]
    means = {}
    for name, arm in known.items():
        said = arm.predict(first, 0)
        means[name] = None if said is None else float(said.tokens.mean())
    good = means["calibrated"]
    assert good is not None
    assert means["nan"] is None
    assert means["bias_x10"] == pytest.approx(10 * good)
    assert means["bias_tenth"] == pytest.approx(good / 10)
    assert means["huge"] == pytest.approx(HUGE_TOKENS)
    assert means["inverted"] * good == pytest.approx(means["constant"] ** 2)  # type: ignore[operator]


def test_engines_are_told_wrong_by_three() -> None:
    engines = ground_of(JOBS[0]).engines
    every, one, batch = (wrong_engines(engines, how) for how in ENGINE_ARMS)
    slowest = max(engines, key=lambda kind: engines[kind].a)
    assert all(every[k].a == pytest.approx(3 * engines[k].a) for k in engines)
    assert one[slowest].a == pytest.approx(engines[slowest].a / 3)
    assert all(one[k] == engines[k] for k in engines if k != slowest)
    assert all(batch[k].b == pytest.approx(3 * engines[k].b) and batch[k].a == engines[k].a for k in engines)


@pytest.mark.parametrize("arm", ["huge", "nan", "slow", "inverted", "slowest_x3"])
def test_late_serves_everybody_whatever_it_is_told(arm: str) -> None:
    found = MISPREDICT.outcome(NOTHING, small(MISPREDICT, "het_kv", "late", arm, n=10))
    assert found.no_end == 0
    assert found.workflow[0] == 10


def test_four_routers_with_a_late_view_still_serve_everybody() -> None:
    for policy in ("late 4r 1s free hash", "late 4r 1s offer", "late 4r 5s", "push 4r 1s"):
        cell = small(ROUTERS, "job_het", policy, "calibrated", n=8)
        assert ROUTERS.outcome(NOTHING, cell).no_end == 0
        assert SETUPS[policy].routers == 4


def test_applications_have_the_shapes_that_they_are_named_after() -> None:
    rng = np.random.default_rng(0)
    wide = deep_research(200, Sizes(), rng)
    widths = np.array([sum(c.type == "search" for c in w.calls) for w in wide])
    assert widths.min() >= 5
    assert widths.max() <= 20
    # modes at 6 and 14, a quarter and then three quarters wide: means 8 and 12, standard error .4
    assert widths[:100].mean() == pytest.approx(8, abs=1.3)
    assert widths[100:].mean() == pytest.approx(12, abs=1.3)
    clips = [sum(c.type == "clip" for c in w.calls) for w in text_to_video(100, Sizes(), rng)]
    assert set(clips) == {1, 2, 3, 4}
    for _, pools in POOLS.values():
        assert len(pools.cluster().replicas) == 48
    assert {r.name for r in PAPER.regimes} == set(POOLS)


def test_without_the_trace_the_prefix_suite_keeps_the_agents(tmp_path: Path) -> None:
    assert [r.name for r in regimes(tmp_path)] == ["agents_hom", "agents_het", "tools_hom", "tools_het"]
    assert len(PREFIX.regimes) == (6 if TRACE.exists() else 4)


@pytest.mark.skipif(not TRACE.exists(), reason="the public conversation trace is not beside the checkout")
def test_the_trace_keeps_its_lengths_and_hashes_only_full_blocks() -> None:
    first = trace(TRACE)[0].calls[0]
    assert first.prompt_tokens == 6758
    assert first.output_tokens == 500
    assert len(first.prefix_blocks) == 6758 // TRACE_BLOCK


def outcome(scale: float) -> Outcome:
    figures = (10.0, 1.0 * scale, 2.0 * scale, 3.0, 1.0)
    return Outcome(figures, figures, 1.0, 1.0, 1, 0, tuple(np.linspace(0.1, 3, 20)), (1.0,) * 4)


def test_the_six_metrics_are_paired_with_led_and_violations_named() -> None:
    cells = {
        replace(small(BATCHED, "het_b32", p), seed=s): outcome(scale * (1 + s))
        for s in range(3)
        for p, scale in ((LED, 1.0), ("late", 1.1))
    }
    (row,) = against_led(cells)
    assert [c.ratio for c in row.six] == pytest.approx([1.1, 1.1, 1.0] * 2)
    assert row.six[0].high == pytest.approx(1.1)  # the ratio is the same under every seed: no width
    assert [m for _, m, _ in violations([row])] == [METRICS[i] for i in (0, 1, 3, 4)]

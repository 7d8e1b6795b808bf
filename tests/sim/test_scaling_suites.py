"""Suites of scalers: cells of every policy, outcomes with replicas and flaps, rows that a report can hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swarmx.scaling import SCALERS
from swarmx.sim.report import Meta
from swarmx.sim.report_html import render
from swarmx.sim.report_text import verdict
from swarmx.sim.scaling.agents import agents
from swarmx.sim.suites import FULL, QUICK, SUITES, Material
from swarmx.sim.suites.evaluation import evaluate
from swarmx.sim.suites.scaling import CURVES, QUICK_POLICIES, Scaling, family
from swarmx.sim.suites.scaling_regimes import ARRIVALS
from swarmx.sim.suites.summary import rows_of

NOTHING = Material("none", (), {}, (), None, "")
SCALING = {name: one for name, one in SUITES.items() if isinstance(one, Scaling)}


@pytest.mark.parametrize("name", SCALING)
def test_every_suite_has_a_cell_for_each_policy_regime_and_seed(name: str) -> None:
    chosen = SCALING[name]
    cells = chosen.cells(NOTHING, FULL)
    assert {family(c.policy) for c in cells} == set(SCALERS)
    settings = len(SCALERS) + sum(len(knobs) for knobs in CURVES.values())
    more = sum(len(chosen.arms.get(regime, ())) for regime in chosen.regimes())
    assert len(cells) == (settings * len(chosen.regimes()) + more) * len(FULL.seeds)
    assert {c.arm for c in cells if c.policy == "hpa"} == {None}


def test_chosen_policies_run_beside_the_references() -> None:
    cells = SCALING["scaling_agents"].cells(NOTHING, QUICK.only(["tail_demand"]))
    assert {family(c.policy) for c in cells} == {"tail_demand", "hpa", "queue_length", "keda_latency", "clairvoyant"}


def test_a_quick_run_holds_the_references_and_the_commonest_rivals() -> None:
    cells = SCALING["scaling_agents"].cells(NOTHING, QUICK)
    assert {family(c.policy) for c in cells} == set(QUICK_POLICIES)
    assert {c.seed for c in cells} == set(QUICK.seeds)


def test_the_same_seed_gives_every_policy_the_same_arrivals() -> None:
    build = SCALING["scaling_daily"].regimes()["sine"]
    assert build(3, 300.0).workload == build(3, 300.0).workload
    assert build(3, 300.0).workload != build(4, 300.0).workload


@pytest.mark.slow
def test_a_row_shows_attainment_replicas_and_flaps() -> None:
    chosen = SCALING["scaling_two_phase"]
    plan = replace(QUICK.only(["tail_demand"]), seeds=(0,))
    cells = [c for c in chosen.cells(NOTHING, plan) if c.policy in ("tail_demand", "queue_length")]
    outcomes = {cell: chosen.outcome(NOTHING, cell) for cell in cells}
    for row in rows_of(outcomes, {}):
        assert row.slo_attainment is not None
        assert 0 <= row.slo_attainment <= 1
        assert row.replica_seconds is not None
        assert row.mean_replicas is not None
        # 48 machines, for a moment more while one drains and its successor starts
        assert 40 < row.mean_replicas < 60
        assert row.vs["queue_length"].p99 > 0


@pytest.mark.parametrize("regime", ["azure", "servegen"])
def test_recorded_arrivals_become_scenarios(regime: str) -> None:
    pytest.importorskip("pyarrow")
    chosen = SCALING["scaling_bursts" if regime == "azure" else "scaling_daily"]
    if regime not in chosen.regimes():
        pytest.skip(f"no recorded arrivals in {ARRIVALS}")
    scenario = chosen.regimes()[regime](0, 600.0)
    times = np.array([w.arrival_s for w in scenario.workload.workflows])
    assert times.size > 5
    assert times.max() <= 600.0
    assert all(model in scenario.begin for model in {c.model for c in scenario.workload.calls()})


def test_a_file_that_is_no_table_is_answered_with_its_name(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from swarmx.errors import BadInput
    from swarmx.sim.scaling.recorded import azure_calls

    path = tmp_path / "broken.parquet"
    path.write_text("no table")
    with pytest.raises(BadInput, match=r"broken\.parquet"):
        azure_calls(path, 0)


@pytest.mark.slow
def test_a_suite_becomes_a_report_with_costs_at_equal_latency_and_a_page() -> None:
    small = Scaling(
        "scaling_small", "a few agent runs", lambda: {"short": lambda seed, span_s: agents(seed, span_s=300)}
    )
    meta = Meta([0, 1, 2], "abc", {"name": "made up"}, {}, {}, "swarmx evaluate", "now")
    plan = replace(QUICK.only(["tail_demand"]), seeds=(0, 1, 2))
    found = evaluate(NOTHING, [small], plan, meta, processes=1)
    rows = {row.policy: row for row in found.rows if row.level == "workflow"}
    assert "tail_demand_at_equal_p95_ratio" in rows["hpa"].extra
    assert not any("at_equal" in name for name in rows["tail_demand"].extra)
    assert "scaling_small" in render(found)
    assert "On short, tail_demand" in verdict(found)

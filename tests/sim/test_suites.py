"""Suites: cells are paired, cached and repeatable, and the figures that come out of them add up."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_log import KINDS, SLOTS, made_log

from swarmx.engine import Segment
from swarmx.errors import BadInput
from swarmx.presets import PRESETS, preset
from swarmx.sim import simulate
from swarmx.sim.report import Meta, write_report
from swarmx.sim.suites import QUICK, SUITES, Material, Plan, material_of, suite
from swarmx.sim.suites.cells import REFERENCES, Cell
from swarmx.sim.suites.engines import fit_engine, recorded_cluster
from swarmx.sim.suites.evaluation import evaluate, fidelity_of
from swarmx.sim.suites.outcome import Outcome, critical_parts
from swarmx.sim.suites.run import run_cells
from swarmx.sim.suites.summary import Group, max_loads, rows_of
from swarmx.sim.suites.worlds import no_queue_s

ON_A_LOG = ("headline", "real_log")
PLAN = Plan((0, 1), 15, (0.5, 0.8), (0.8,), ("least_outstanding_per_speed", "late"), ("late",), ("late",))
META = Meta([0, 1], "abc", {"name": "made"}, {}, {}, "swarmx evaluate", "now")


@pytest.fixture(scope="module")
def material() -> Material:
    records = made_log()
    return material_of("made", records, None, recorded_cluster(records))


def outcome(p99: float, seed: int = 0) -> Outcome:
    figures = (100.0, p99 / 4, p99 / 2, p99 * (1 + 0.01 * seed), 0.9)
    return Outcome(figures, figures, 1.0, 60.0, 12, 0, tuple(np.linspace(0.1, p99, 20)), (1.0, 1.0, 1.0, 1.0))


def cell(policy: str, load: float = 0.8, seed: int = 0) -> Cell:
    return Cell("headline", "made", "het", load, policy, None, seed, 100)


def test_engines_fitted_from_a_log_are_those_that_served_it() -> None:
    found = {replica.device: replica for replica in recorded_cluster(made_log()).replicas}
    for device, truth in KINDS.items():
        fitted = found[device].service
        assert found[device].slots == SLOTS
        # some 500 calls a kind; only their lengths are rounded, so the sum a + b at one call is within 5 %
        assert fitted.tau(1, 0) == pytest.approx(truth.tau(1, 0), rel=0.05)
        assert fitted.tau(SLOTS, 500) == pytest.approx(truth.tau(SLOTS, 500), rel=0.05)
        assert fitted.p == pytest.approx(truth.p, rel=0.15)


def test_prefill_is_read_off_prompts_that_were_alone() -> None:
    rng = np.random.default_rng(3)
    alone = [Segment(float(n) * 0.002, 0.0, 0.0, 0.0, float(n)) for n in rng.integers(50, 400, 20)]
    beside = []  # decoding calls that the prompts of others slow down twice as much as they take alone
    for _ in range(200):
        tokens, batch, prefilled = (float(x) for x in rng.integers((20, 1, 0), (200, 5, 600)))
        beside.append(Segment(tokens * (0.01 + 0.004 * batch) + 0.004 * prefilled, tokens, batch, 0.0, prefilled))
    assert fit_engine([*alone, *beside]).p == pytest.approx(0.002)
    assert fit_engine([*alone[:5], *beside]).p == pytest.approx(0.004, rel=0.05)  # too few of them to go by


def test_a_log_without_replicas_fits_no_engines() -> None:
    with pytest.raises(BadInput, match="to fit its engines"):
        recorded_cluster([replace(record, replica=None) for record in made_log()])


def test_the_replay_of_a_simulated_log_is_faithful(material: Material) -> None:
    for found in fidelity_of(material):
        for name, seconds in found.recorded_s.items():
            assert found.simulated_s[name] == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize("name", ON_A_LOG)
def test_a_suite_on_a_log_runs_all_its_policies_in_the_same_world(material: Material, name: str) -> None:
    chosen = suite(name)
    cells = chosen.cells(material, PLAN)
    assert {c.policy for c in cells if c.load == 0.8} == set(PLAN.policies)
    assert {c.policy for c in cells if c.load == 0.5} == set(PLAN.side_policies)
    assert {c.arm for c in cells if c.policy == "late" and c.load == 0.8} == {"type", "oracle", "none"}
    first, second = (
        c for c in cells if c.seed == 1 and c.load == 0.8 and c.arm in (None, "oracle") and c.regime == "hom"
    )
    one, other = chosen.world(material, first), chosen.world(material, second)
    assert one.workload == other.workload
    assert one.cluster == other.cluster
    assert chosen.about
    assert all(key.endswith("_s") or value >= 0 for key, value in chosen.settings(material).items())


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_can_be_sent_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(SUITES[name])).name == name


def test_the_default_plans_hold_the_references_at_every_load() -> None:
    plan = QUICK.only(["late"])
    assert set(plan.policies) == {"late", *REFERENCES}
    assert {"round_robin", "power_of_two", "least_outstanding_per_speed", "clairvoyant"} <= set(plan.side_policies)


def test_an_unknown_policy_or_suite_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"'fastest'.*round_robin, power_of_two"):
        QUICK.only(["late", "fastest"])
    with pytest.raises(BadInput, match=r"'everything'.*headline, real_log"):
        suite("everything")


def test_outcomes_are_the_same_from_one_process_from_two_and_from_disk(material: Material, tmp_path: Path) -> None:
    chosen = suite("headline")
    cells = chosen.cells(material, replace(PLAN, loads=(0.8,), seeds=(0,)))[:3]
    alone = run_cells(chosen, material, cells, tmp_path, processes=1)
    seen: list[str] = []
    kept = run_cells(chosen, material, cells, tmp_path, processes=2, done=seen.append)
    assert kept == alone
    assert len(seen) == len(list(tmp_path.glob("*.json"))) == len(cells)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(material: Material) -> None:
    chosen = suite("real_log")
    cells = chosen.cells(material, replace(PLAN, loads=(0.8,), seeds=(0,)))[:4]
    assert run_cells(chosen, material, cells, None, 2) == run_cells(chosen, material, cells, None, 1)


def test_a_stopped_run_computes_only_what_is_left(material: Material, tmp_path: Path) -> None:
    chosen = suite("headline")
    cells = chosen.cells(material, replace(PLAN, loads=(0.8,), seeds=(0,)))[:2]
    run_cells(chosen, material, cells[:1], tmp_path, processes=1)
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text())
    kept["outcome"]["no_end"] = 7  # a mark by which to know it again
    path.write_text(json.dumps(kept))
    found = run_cells(chosen, material, cells, tmp_path, processes=1)
    assert [o.no_end for o in found.values()] == [7, 0]


@pytest.mark.slow
def test_the_same_seeds_give_the_same_report(material: Material, tmp_path: Path) -> None:
    for name in ("a", "b"):
        report = evaluate(material, [suite("headline")], PLAN, META, processes=1)
        write_report(report, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_parts_of_the_critical_path_add_up_to_the_latency(material: Material) -> None:
    for name in ON_A_LOG:
        chosen = suite(name)
        world = chosen.world(material, chosen.cells(material, PLAN)[0])
        table = simulate(world.workload, world.cluster, preset("least_outstanding_per_speed"))
        assert sum(critical_parts(table)) == pytest.approx(float(table.workflow_latency_s().mean()), rel=1e-9)


def test_no_policy_beats_the_latency_without_a_queue(material: Material) -> None:
    chosen = suite("headline")
    cells = [c for c in chosen.cells(material, PLAN) if c.policy == "late" and c.arm == "oracle" and c.seed == 0]
    world = chosen.world(material, cells[0])
    table = simulate(world.workload, world.cluster, preset("late"), world.arm)
    alone = [no_queue_s(workflow, world.cluster)[0] for workflow in world.workload.workflows]
    assert np.all(table.workflow_latency_s() >= np.array(alone) - 1e-6)


def test_a_cell_counts_every_workflow_that_arrived(material: Material) -> None:
    chosen = suite("headline")
    found = chosen.outcome(material, chosen.cells(material, PLAN)[0])
    assert found.workflow[0] == PLAN.workflows
    assert found.no_end == 0


def test_rows_pair_the_seeds_and_name_the_references() -> None:
    led, late = "least_outstanding_per_speed", "late"
    outcomes = {cell(p, seed=s): outcome(v * (1 + s), s) for s in (0, 1, 2) for p, v in ((led, 10.0), (late, 5.0))}
    rows = rows_of(outcomes, {"het": 4.0})
    row = next(r for r in rows if r.policy == late and r.level == "workflow")
    # seeds differ by a factor of three, the ratio within each seed does not: the interval has no width
    assert row.vs["led"].p99 == pytest.approx(0.5)
    assert row.vs["led"].ci95 == pytest.approx((0.5, 0.5))
    assert row.n == 300
    assert row.p99_s == pytest.approx((5 * 10 * 1.01 * 15 * 1.02) ** (1 / 3))


def test_the_largest_load_within_the_limit_is_read_off_the_sweep() -> None:
    def sweep(*p99: float) -> float:
        groups: dict[Group, list[Outcome]] = {}
        for load, value in zip((0.5, 0.7, 0.9), p99, strict=True):
            groups["headline", "made", "het", load, "late", None] = [outcome(value)]
        (found,) = max_loads(groups, {"het": 1.0}).values()
        return found

    assert sweep(1.0, 1.0, 4.0) == pytest.approx(0.8)  # log P99 crosses log 2 half-way from 1 to 4
    assert sweep(3.0, 4.0, 5.0) == 0.0
    assert sweep(1.0, 1.2, 1.5) == 0.9


def test_a_log_s_priorities_do_not_decide_a_comparison() -> None:
    records = [replace(r, priority="low" if i % 2 else "high") for i, r in enumerate(made_log())]
    assert {w.priority for w in material_of("made", records, None, None).workflows} == {"normal"}


def test_one_queue_on_equal_replicas_serves_like_a_clairvoyant_router(material: Material) -> None:
    # equal one-call replicas, first come first served: each call starts when the first replica gets free; the one queue
    # does that by waiting, the router by knowing all lengths
    chosen = suite("headline")
    pair = (("central_fcfs", None), ("clairvoyant", "oracle"))
    queue, router = (chosen.outcome(material, Cell("headline", "made", "hom", 0.9, p, a, 3, 60)) for p, a in pair)
    assert queue.workflow[3] == pytest.approx(router.workflow[3], rel=0.05)


def test_policies_run_only_with_the_arms_that_they_can_use(material: Material) -> None:
    for one in suite("headline").cells(material, QUICK):
        needs = PRESETS[one.policy].needs  # quick runs hold no variants
        assert (one.arm is None) == (needs == "nothing")
        assert needs != "oracle" or one.arm == "oracle"

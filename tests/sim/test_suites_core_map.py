"""The regime map and the ablation: every place has its colour, every row its setting."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from swarmx.sim.suites.ablation import ABLATION, ROWS, SURE, UNSURE, uneven
from swarmx.sim.suites.cells import LED, Cell
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.regime_map import ENGINES, KNOWN, LOADS, SIMPLE, SPEEDS, colour, picture, places
from swarmx.sim.synthetic import Sizes

NOTHING = Material("made", (), {}, (), None, "")


def outcomes(late: float, simple: dict[str, float], seeds: int = 3) -> dict[Cell, Outcome]:
    """Every place alike: workflow P99 of each policy, larger under later seeds for all of them."""
    out = {}
    for engine in ENGINES:
        for speeds in SPEEDS:
            for known in KNOWN:
                for load in LOADS:
                    for policy, p99 in {**simple, "late": late}.items():
                        for seed in range(seeds):
                            name = f"{engine}; {speeds}; {known}"
                            cell = Cell("regime_map", "regime_map", name, load, policy, None, seed, 9)
                            figures = (9.0, 1.0, 2.0, p99 * (1 + seed), 1.0)
                            curve = tuple(np.linspace(0.1, 1.0, 20))
                            out[cell] = Outcome(figures, figures, 1.0, 1.0, 1, 0, curve, (1.0,) * 4)
    return out


def test_each_place_is_measured_against_the_best_simple_policy_there() -> None:
    found = places(outcomes(6.0, dict(zip(SIMPLE, (10.0, 8.0, 9.0), strict=True))))
    assert len(found) == len(ENGINES) * len(SPEEDS) * len(KNOWN) * len(LOADS)
    assert {p.best for p in found} == {SIMPLE[1]}
    assert found[0].ratio.ratio == pytest.approx(0.75)
    assert all(p.gains for p in found)


@pytest.mark.parametrize(("late", "wanted"), [(5.0, "rgb"), (9.99, "#d9d9d9"), (10.2, "#d9d9d9"), (11.0, "#e8a09a")])
def test_no_gain_is_grey_and_a_loss_is_red(late: float, wanted: str) -> None:
    seeds = 1 if wanted == "#d9d9d9" else 3  # one seed has no interval: 3 % must be gained
    (place, *_) = places(outcomes(late, {LED: 10.0}, seeds))
    assert colour(place).startswith(wanted)


def test_the_picture_is_valid_svg_with_a_cell_for_each_place() -> None:
    found = places(outcomes(7.0, {LED: 10.0}))
    root = ElementTree.fromstring(picture(found))
    cells = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
    assert len(cells) == len(found)
    assert {e.find("{http://www.w3.org/2000/svg}title").text.split(": ")[1] for e in cells} == {f"-30 % of {LED}"}  # type: ignore[union-attr]


def test_every_row_of_the_ablation_is_another_setting_and_runs() -> None:
    assert len(set(ROWS.values())) == len(ROWS)
    for row in ("rho .5, CVaR95, age", "comonotone, q95, age, 2 candidates"):
        cell = Cell("ablation", "ablation", "job_het_uneven", 0.8, row, "calibrated", 0, 6)
        assert ABLATION.outcome(NOTHING, cell).workflow[0] == 6


def test_every_second_workflow_is_hard_to_predict() -> None:
    found = uneven(6, Sizes(), np.random.default_rng(0))
    assert len({w.id for w in found}) == 6
    ratio = np.array([w.calls[0].sigma for w in found[1::2]]) / np.array([w.calls[0].sigma for w in found[::2]])
    assert ratio == pytest.approx(np.sqrt((1 - UNSURE) / (1 - SURE)))

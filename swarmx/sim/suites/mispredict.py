"""Predictors that are wrong in every way, and service constants that are: does `late` still keep up with counts?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.quantiles import QuantileGrid
from swarmx.sim import Arm, Timing
from swarmx.sim.arms import Biased, Calibrated, Inverted, Noisy, cut_tokens
from swarmx.sim.suites.batched import JOBS, REGIMES
from swarmx.sim.suites.cells import LED, Cell, World
from swarmx.sim.suites.made import Made, ground_of
from swarmx.sim.suites.material import Material
from swarmx.sim.synthetic import TYPE_MEANS
from swarmx.sim.workload import SimWorkflow
from swarmx.types import Prediction

FACTOR = 10.0
WRONG = 3.0
SLOW_S = 5.0  # a prediction that comes so late finds most calls started
HUGE_TOKENS = 1e30


@dataclass(frozen=True, slots=True)
class Constant:
    """The same surely known length for every call."""

    tokens: float
    name: str = "constant"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        return Prediction(QuantileGrid.point(self.tokens), "neural")


@dataclass(frozen=True, slots=True)
class Broken:
    """A model that computes no numbers: a grid cannot be made of that, and calls go on without a prediction."""

    arm: Arm
    name: str = "nan"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        said = self.arm.predict(workflow, place)
        try:
            return None if said is None else replace(said, tokens=said.tokens.scaled(np.nan))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Turned:
    """Honest about workflows that arrive before that time, and so believed; then as wrong as `later`."""

    first: Arm
    later: Arm
    at_s: float
    name: str = "turned"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        return (self.first if workflow.arrival_s < self.at_s else self.later).predict(workflow, place)


def arms(workflows: tuple[SimWorkflow, ...], turns_s: float = 0.0) -> dict[str, Arm]:
    """Every way to be wrong; the sample's mean is what an honest constant would be. turns_s : when `Turned` arms do"""
    good = Calibrated(workflows)
    mean = float(np.mean([cut_tokens(c) for w in workflows for c in w.calls]))
    every: dict[str | None, float] = dict.fromkeys(TYPE_MEANS, FACTOR)
    tenth: dict[str | None, float] = dict.fromkeys(TYPE_MEANS, 1 / FACTOR)
    half: dict[str | None, float] = dict.fromkeys(sorted(TYPE_MEANS)[::2], FACTOR)
    inverted = Inverted(good, mean)
    return {
        "calibrated": good,
        "noisy": Noisy(good),
        "bias_x10": Biased(good, every, "bias_x10"),
        "bias_tenth": Biased(good, tenth, "bias_tenth"),
        "bias_x10_half": Biased(good, half, "bias_x10_half"),
        "inverted": inverted,
        "turns_x10": Turned(good, Biased(good, every, "bias_x10"), turns_s),
        "turns_inverted": Turned(good, inverted, turns_s),
        "constant": Constant(mean),
        "huge": Constant(HUGE_TOKENS, "huge"),
        "nan": Broken(good),
        "slow": good,
    }


def wrong_engines(engines: dict[str, EngineConstants], how: str) -> dict[str, EngineConstants]:
    """Constants as told: all too slow by three, those of the slowest kind too fast by three, or b alone."""
    slowest = max(engines, key=lambda kind: engines[kind].a)
    if how == "engines_x3":
        return {kind: one.at_speed(1 / WRONG) for kind, one in engines.items()}
    if how == "slowest_x3":
        return {kind: one.at_speed(WRONG) if kind == slowest else one for kind, one in engines.items()}
    return {kind: replace(one, b=one.b * WRONG, c=one.c * WRONG) for kind, one in engines.items()}


ENGINE_ARMS = ("engines_x3", "slowest_x3", "bc_x3")


class Mispredict(Made):
    """Rows with arms: what the scheduler is told of lengths, or (the last three) of the engines."""

    def arms_of(self, policy: str, every: bool) -> tuple[str | None, ...]:
        return self.arms if policy in ("push", "late") else (None,)

    def world(self, material: Material, cell: Cell) -> World:
        usual = super().world(material, replace(cell, arm=None))
        ground = ground_of(self.regime(cell.regime))
        if cell.arm in ENGINE_ARMS:
            told = wrong_engines(ground.engines, str(cell.arm))
            return replace(usual, arm=Calibrated(ground.sample.workflows), engines=told)
        if cell.arm is None or cell.arm == "none":
            return usual
        timing = Timing(prediction_s=SLOW_S) if cell.arm == "slow" else usual.timing
        run = usual.workload.workflows
        half_s = run[len(run) // 2].arrival_s
        return replace(usual, arm=arms(ground.sample.workflows, half_s)[cell.arm], timing=timing)


MISPREDICT = Mispredict(
    "mispredict",
    "adversarial predictors (biased, inverted, constant, not a number, slow) and service constants wrong by three",
    (JOBS[0], *(r for r in REGIMES if r.name in ("het_b32", "het_kv", "het_b8", "hom_kv"))),
    (LED, "central_fcfs", "push", "late"),
    (LED, "late"),
    (
        "calibrated", "none", "noisy", "bias_x10", "bias_tenth", "bias_x10_half", "inverted", "turns_x10",
        "turns_inverted", "constant", "huge", "nan", "slow", *ENGINE_ARMS,
    ),
    short_share=0.2,
)  # fmt: skip

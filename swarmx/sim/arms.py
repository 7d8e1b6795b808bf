"""Who predicts in a simulation: from the truth itself down to averages of call types, and the ways to be wrong.

An arm may look at the truth; a policy gets to know only what the arm says. Errors are drawn from the ids of workflow
and call, so that every policy sees the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import NormalDist
from zlib import crc32

import numpy as np

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.sim.contracts import Arm
from swarmx.sim.workload import SimCall, SimWorkflow
from swarmx.types import Prediction

NORMAL = np.array([NormalDist().inv_cdf(level) for level in LEVELS])


def lognormal_grid(median: float, sigma: float) -> QuantileGrid:
    """Quantiles of a lognormal with this median and standard deviation of the logarithm."""
    return QuantileGrid(LEVELS, median * np.exp(sigma * NORMAL))


def cut_tokens(call: SimCall) -> float:
    """What it will produce, its own limit respected."""
    return call.output_tokens if call.max_tokens is None else min(call.output_tokens, call.max_tokens)


def remaining_tokens(workflow: SimWorkflow, place: int) -> float:
    """Output tokens of the calls that stand after this one."""
    return sum(cut_tokens(c) for c in workflow.calls[place + 1 :])


def noise_of(workflow: SimWorkflow, place: int, salt: str) -> float:
    """A standard normal number that depends on nothing but its arguments."""
    name = f"{salt}/{workflow.id}/{workflow.calls[place].key}".encode()
    return NormalDist().inv_cdf((crc32(name) + 0.5) / 2**32)


@dataclass(frozen=True, slots=True)
class Oracle:
    """The truth: every length, and what the workflow still holds."""

    name: str = "oracle"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction:
        grid = QuantileGrid.point(cut_tokens(workflow.calls[place]))
        rest = QuantileGrid.point(remaining_tokens(workflow, place)) if place == 0 else None
        return Prediction(grid, "oracle", remaining_tokens=rest)


class Calibrated:
    """The best that can be known of a synthetic call: its true lognormal, median and sigma.

    Of the log variance of what a workflow holds after its first call, the share `rho2` is known as well, with the right
    spread around it; mean and variance are those of `sample`, workflows of the same kind.
    Raises ValueError for a call without `median_tokens`.
    """

    def __init__(self, sample: Sequence[SimWorkflow], rho2: float = 0.6, name: str = "calibrated") -> None:
        self.name = name
        self.rho2 = rho2
        logs = [log(r) for w in sample if (r := remaining_tokens(w, 0)) > 0]
        self._mean = float(np.mean(logs)) if logs else 0.0
        self._sd = float(np.std(logs)) if logs else 0.0

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction:
        call = workflow.calls[place]
        if not call.median_tokens > 0:
            raise ValueError(f"call {call.key!r} of {workflow.id!r} has no known distribution; use another arm")
        rest = self._rest(workflow) if place == 0 else None
        return Prediction(lognormal_grid(call.median_tokens, call.sigma), "neural", remaining_tokens=rest)

    def _rest(self, workflow: SimWorkflow) -> QuantileGrid:
        true = remaining_tokens(workflow, 0)
        if true <= 0:
            return QuantileGrid.point(0.0)
        known = self._mean + self.rho2 * (log(true) - self._mean)
        known += sqrt(self.rho2 * (1 - self.rho2)) * self._sd * noise_of(workflow, 0, "rest")
        return lognormal_grid(exp(known), sqrt(1 - self.rho2) * self._sd)


class PerType:
    """Quantiles of the call's type in `sample`, and the mean of what its workflows hold after a call of the type."""

    def __init__(self, sample: Sequence[SimWorkflow], name: str = "type") -> None:
        self.name = name
        lengths: dict[str | None, list[float]] = {}
        rests: dict[str | None, list[float]] = {}
        for workflow in sample:
            rest = sum(cut_tokens(c) for c in workflow.calls)
            for call in workflow.calls:
                rest -= cut_tokens(call)
                lengths.setdefault(call.type, []).append(cut_tokens(call))
                rests.setdefault(call.type, []).append(max(rest, 0.0))
        self._predictions: Mapping[str | None, Prediction] = {
            t: Prediction(QuantileGrid.of_samples(v), "per_type", remaining_tokens=QuantileGrid.of_samples(rests[t]))
            for t, v in lengths.items()
        }

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        return self._predictions.get(workflow.calls[place].type)


@dataclass(frozen=True, slots=True)
class Noisy:
    """Another arm's lengths times exp(sd·Z - sd²/2), its spread left as it was: wrong and sure of itself."""

    arm: Arm
    sd: float = 1.0
    name: str = "noisy"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        prediction = self.arm.predict(workflow, place)
        if prediction is None:
            return None
        factor = exp(self.sd * noise_of(workflow, place, self.name) - self.sd**2 / 2)
        return replace(prediction, tokens=prediction.tokens.scaled(factor))


@dataclass(frozen=True, slots=True)
class Biased:
    """Another arm's lengths times a factor for each call type (1 where none is given)."""

    arm: Arm
    factors: Mapping[str | None, float]
    name: str = "biased"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        prediction = self.arm.predict(workflow, place)
        factor = self.factors.get(workflow.calls[place].type, 1.0)
        return None if prediction is None else replace(prediction, tokens=prediction.tokens.scaled(factor))


@dataclass(frozen=True, slots=True)
class Inverted:
    """Long is called short and short long: the arm's lengths are mirrored around `middle` on the log scale."""

    arm: Arm
    middle: float
    name: str = "inverted"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        prediction = self.arm.predict(workflow, place)
        if prediction is None:
            return None
        factor = (self.middle / max(float(prediction.tokens.mean()), 1e-9)) ** 2
        return replace(prediction, tokens=prediction.tokens.scaled(factor))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Predictions made beforehand for the rows of a log, by `SimCall.record_index`; None for a row that has none."""

    predictions: Sequence[Prediction | None]
    name: str = "trained"

    def predict(self, workflow: SimWorkflow, place: int) -> Prediction | None:
        row = workflow.calls[place].record_index
        return self.predictions[row] if 0 <= row < len(self.predictions) else None

"""Predictors and service constants that are wrong on purpose, in the simulator: P99 of `late` over LED's and over its
own without a prediction, and what an honest predictor gains.

    python benchmarks/_adaptation_guard.py [--quick] [--seeds 12] [--workflows 201] [--regimes NAME ...] [--arms ...]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.sim.suites.cells import LED, Cell
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.mispredict import ENGINE_ARMS, MISPREDICT

NOTHING = Material("made", (), {}, (), None, "")
HONEST = ("calibrated",)
WRONG = ("bias_x10", "bias_tenth", "bias_x10_half", "inverted", "turns_x10", "turns_inverted", "constant", "huge",
         "nan", "slow")  # fmt: skip
ARMS = (*HONEST, *WRONG, *ENGINE_ARMS)
WORST_ARMS = ("bias_x10", "inverted", "turns_x10", "constant", "nan", "slow", *ENGINE_ARMS)  # for a shorter run
REGIMES = ("job_het", "het_b32", "het_kv", "hom_kv")
LOAD = 0.8
LIMITS = {"led": 1.03, "none": 1.05}
Array = NDArray[np.float64]


def adversarial(
    quick: bool = False, seeds: int | None = None, workflows: int | None = None, regimes: Sequence[str] = (),
    arms: Sequence[str] = (), say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:  # fmt: skip
    """Geometric means over paired seeds of the P99 of calls and of workflows, per regime and over all, with the bounds
    of their 95 % intervals.

    worst_p99_vs_led, _vs_none : largest of the wrong arms' means over all regimes; broken : rows of wrong arms whose
    whole interval lies above the limit; open : those whose interval holds the limit. A run is short, so the calls
    before the guard has concluded weigh in it as they never would in service. say : is told what begins
    """
    regimes, arms = regimes or (REGIMES[1:2] if quick else REGIMES), arms or (WRONG[:7] if quick else ARMS)
    seeds, workflows = seeds or (4 if quick else 12), workflows or (100 if quick else 201)
    arms = tuple(dict.fromkeys(("led", "none", "calibrated", *arms)))
    found = {}
    for regime in regimes:
        say(f"guard: {regime}, {seeds} seeds of {len(arms)} arms")
        for arm in arms:
            found[regime, arm] = np.log([_p99s(regime, arm, seed, workflows) for seed in range(seeds)])  # (seeds, 2)
    for arm in arms:  # per seed the mean over regimes
        found["all", arm] = np.mean([found[regime, arm] for regime in regimes], axis=0)
    rows = [
        {"regime": regime, "arm": arm, **_row(found[regime, arm], {side: found[regime, side] for side in LIMITS})}
        for regime in (*regimes, "all")
        for arm in arms[1:]
    ]
    wrong = [row for row in rows if row["arm"] not in ("none", *HONEST)]
    return {
        **{f"worst_p99_vs_{side}": _worst(wrong, side) for side in LIMITS},
        "broken": [told for row in wrong for told in _over(row, bound=0)],
        "open": [told for row in wrong for told in _over(row, bound=1) if told not in _over(row, bound=0)],
        "rows": rows, "seeds": seeds, "workflows": workflows, "load": LOAD, "limits": LIMITS,
    }  # fmt: skip


def _row(p99: Array, sides: dict[str, Array]) -> dict[str, Any]:
    """Per level and side: ratio, lower and upper bound."""
    out = {}
    for side, other in sides.items():
        gap = p99 - other
        half = 1.96 * gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
        for i, level in enumerate(("call", "workflow")):
            middle, width = gap[:, i].mean(), half[i]
            out[f"{level}_vs_{side}"] = [round(float(np.exp(x)), 3) for x in (middle, middle - width, middle + width)]
    return out


def _worst(rows: list[dict[str, Any]], side: str) -> float:
    return max(float(row[f"{level}_vs_{side}"][0]) for row in rows if row["regime"] == "all" for level in LEVELS)


def _over(row: dict[str, Any], bound: int) -> list[str]:
    """What of a row lies over its limit by the lower bound (0) or the upper (1)."""
    return [
        f"{row['regime']} {row['arm']} {level} vs {side}: {ratio} [{low}, {high}]"
        for side, limit in LIMITS.items()
        for level in LEVELS
        for ratio, low, high in [row[f"{level}_vs_{side}"]]
        if (low, high)[bound] > limit
    ]


LEVELS = ("call", "workflow")


def _p99s(regime: str, arm: str, seed: int, workflows: int) -> tuple[float, float]:
    policy, told = (LED, None) if arm == "led" else ("late", arm)
    found = MISPREDICT.outcome(NOTHING, Cell("mispredict", "mispredict", regime, LOAD, policy, told, seed, workflows))
    return found.call[3], found.workflow[3]


if __name__ == "__main__":
    import argparse
    import json
    import sys

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--seeds", type=int)
    options.add_argument("--workflows", type=int)
    options.add_argument("--regimes", nargs="*", default=[])
    options.add_argument("--arms", nargs="*", default=[])
    given = options.parse_args()
    print(json.dumps(adversarial(**vars(given), say=lambda what: print(what, file=sys.stderr, flush=True)), indent=1))

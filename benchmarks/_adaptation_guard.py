"""Predictors that are wrong on purpose, in the simulator: P99 of `late` over LED's and over its own without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from swarmx.sim.suites.cells import LED, Cell
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.mispredict import MISPREDICT

NOTHING = Material("made", (), {}, (), None, "")
WRONG = ("bias_x10", "bias_tenth", "bias_x10_half", "inverted", "constant", "huge", "nan", "slow")
REGIMES = ("job_het", "het_b32", "het_kv", "hom_kv")
LOAD = 0.8


def adversarial(quick: bool) -> dict[str, Any]:
    """Geometric means over paired seeds of the P99 of calls and of workflows, per arm and regime; the worst of each.

    interval : half width of the 95 % interval of the worst ratio to LED. A run is short, 201 workflows, so the calls
    before the guard has concluded weigh in it as they never would in service.
    """
    regimes, seeds, workflows = (REGIMES[1:2], 2, 100) if quick else (REGIMES, 12, 201)
    found = {
        (regime, arm): np.log([_p99s(regime, arm, seed, workflows) for seed in range(seeds)])  # (seeds, 2)
        for regime in regimes
        for arm in ("led", "none", "calibrated", *WRONG)
    }
    rows = []
    for regime in regimes:
        led, none = found[regime, "led"], found[regime, "none"]
        for arm in ("none", "calibrated", *WRONG):
            gap = found[regime, arm] - led
            half = 1.96 * gap.std(axis=0, ddof=1) / np.sqrt(seeds)
            rows.append({
                "regime": regime, "arm": arm,
                **_pair("vs_led", np.exp(gap.mean(axis=0))),
                **_pair("interval", half),
                **_pair("vs_none", np.exp((found[regime, arm] - none).mean(axis=0))),
            })  # fmt: skip
    wrong = [row for row in rows if row["arm"] in WRONG]
    return {
        "worst_p99_vs_led": max(max(row["call_vs_led"], row["workflow_vs_led"]) for row in wrong),
        "worst_p99_vs_none": max(max(row["call_vs_none"], row["workflow_vs_none"]) for row in wrong),
        "rows": rows, "seeds": seeds, "workflows": workflows, "load": LOAD,
    }  # fmt: skip


def _pair(name: str, values: Any) -> dict[str, float]:
    return {f"call_{name}": round(float(values[0]), 4), f"workflow_{name}": round(float(values[1]), 4)}


def _p99s(regime: str, arm: str, seed: int, workflows: int) -> tuple[float, float]:
    policy, told = (LED, None) if arm == "led" else ("late", arm)
    found = MISPREDICT.outcome(NOTHING, Cell("mispredict", "mispredict", regime, LOAD, policy, told, seed, workflows))
    return found.call[3], found.workflow[3]

"""What the endpoint picker's choices are worth, on emulated engines and a virtual clock: many workflows in little time.

    swarmx bench picker_virtual [--quick] [--json]

Prompts, workflows, hidden rule and predictor are those of `swarmx bench picker`, whose real Envoy allows a hundred
workflows a minute; here Envoy and gRPC are fixed delays: those that were measured of the picker on an otherwise idle
machine. Two pools, since what can be won depends on how many calls a replica runs at once. `least_request` is Envoy's:
two replicas at random, the one with fewer requests in flight; `full_scan` looks at all. Nobody is told the speeds, but
`all_known`, which is `late` told the speeds and each answer's true length: what better learning could still bring.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import _http_suite as suite
import numpy as np
from _virtual import Fleet, Predict, interval, predictor, simulated

from swarmx.quantiles import QuantileGrid
from swarmx.types import Prediction

ANSWER_S, SEEN_S = 0.003, 0.002  # the picker's answer into the replica, and an answer's end to the picker
POOLS = {"one call at a time": 1, "four at once": suite.SLOTS}
LOADS = (0.75, 0.9)
KNOWN = "known"
# label -> preset, what it knows of an answer's length
ARMS = {
    "envoy_round_robin": ("round_robin", ""), "envoy_least_request": ("power_of_two", ""),
    "full_scan": ("least_outstanding_per_speed", ""),
    "llmd_predicted": ("llmd_predicted", ""),
    "late": ("late", ""), "late_trained": ("late", "trained"), "all_known": ("late", KNOWN),
}  # fmt: skip
OURS = ("late", "late_trained", "all_known")


def exact(prompt: str) -> Prediction:
    """The length that the hidden rule gives this prompt's answer."""
    return Prediction(QuantileGrid.point(float(suite.RULE.length(f"user: {prompt}"))), "neural")


def one_pool(slots: int, load: float, seeds: int, runs: int, predict: Predict) -> dict[str, Any]:
    """Seconds of workflows by arm, and the ratios of ours to each other one with 95 % intervals."""
    fleet = Fleet(suite.SPEEDS, slots, suite.TOKEN_S * 2, suite.RULE, SEEN_S, ANSWER_S / 2, ANSWER_S / 2,
                  told=False)  # fmt: skip
    knows = {"": (fleet, None), "trained": (fleet, predict), KNOWN: (replace(fleet, told=True), exact)}
    warm = max(20, runs // 7)
    rate = load * suite.capacity_per_s(2.0, slots=slots) / suite.CALLS_PER_RUN
    found = {
        label: [
            simulated(name, s, knows[said][0], suite.workload(s, runs + warm, rate), warm, knows[said][1])
            for s in range(1, seeds + 1)
        ]
        for label, (name, said) in ARMS.items()
    }
    every = {label: np.concatenate(parts) for label, parts in found.items()}
    ratios = {}
    for mine in OURS:
        for other in [label for label in ARMS if label not in OURS]:
            p99 = float(np.quantile(every[mine], 0.99) / np.quantile(every[other], 0.99))
            ratios[f"{mine}_vs_{other}"] = [round(p99, 3), *interval(found[mine], found[other])]
    seconds = {label: np.quantile(x, (0.5, 0.95, 0.99)).round(2).tolist() for label, x in every.items()}
    return {"p50_p95_p99_s": seconds, "p99_ratio": ratios}


def run(quick: bool = False, data: str | None = None) -> dict[str, Any]:
    """Each pool at each load. data : unused"""
    seeds, runs = (2, 120) if quick else (8, 300)
    with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
        predict = predictor(suite.training_records(3000, seed=suite.RULE.seed + 9), Path(folder))
        pools = {
            f"{name}, load {load}": one_pool(slots, load, seeds, runs, predict)
            for name, slots in POOLS.items()
            for load in LOADS
        }
    meta = {"seeds": seeds, "workflows_per_seed": runs, "speeds": suite.SPEEDS, "delays_s": [ANSWER_S, SEEN_S]}
    return {**pools, "meta": meta}


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))

"""The queue owner and its rivals on emulated engines and a virtual clock: many workflows in seconds of CPU.

    swarmx bench ray_virtual [--quick] [--json]

Engines, prompts, workflows, predictor and the owner's rules are those of `swarmx bench ray`; Ray is replaced by fixed
delays: those that were measured between a call's end and the next one's start on an otherwise idle machine. `late` pays
all of them, a router that binds at once only the way into the replica.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)
sys.path[:] = [p for p in sys.path if p not in ("", HERE)] + [HERE]  # last: this folder holds a ray.py

import numpy as np  # noqa: E402
from _http_suite import TOKEN_S  # noqa: E402
from _ray_suite import CALLS_PER_RUN, RULE, SLOTS, SPEEDS, capacity_per_s, training_records, workload  # noqa: E402
from _virtual import Fleet, interval, predictor, simulated  # noqa: E402

REPORT_S, GRANT_S, SERVE_S = 0.0034, 0.0028, 0.0046  # end -> owner, owner -> handle, handle -> replica
LOAD = 0.9
FLEET = Fleet(SPEEDS, SLOTS, TOKEN_S, RULE, REPORT_S, GRANT_S, SERVE_S)
RIVALS = {
    "serve power of two": "power_of_two", "LED": "least_outstanding_per_speed", "push": "push", "late": "late",
}  # fmt: skip


def run(quick: bool = False, data: str | None = None, seeds: int = 0, runs: int = 0) -> dict[str, Any]:
    """Workflow seconds by router, P99 relative to LED for each seed and over all. data : unused"""
    seeds, runs = seeds or (2 if quick else 8), runs or (120 if quick else 250)
    warm = max(20, runs // 7)
    rate = LOAD * capacity_per_s(1.0) / CALLS_PER_RUN
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
        predict = predictor(training_records(4000, seed=7), Path(folder))
        for label, name in RIVALS.items():
            used = predict if name in ("push", "late") else None
            found[label] = [
                simulated(name, s, FLEET, workload(s, runs + warm, rate), warm, used) for s in range(1, seeds + 1)
            ]
    p99 = {label: np.array([np.quantile(part, 0.99) for part in parts]) for label, parts in found.items()}
    quantiles = {
        label: np.quantile(np.concatenate(parts), (0.5, 0.95, 0.99)).round(3).tolist() for label, parts in found.items()
    }
    return {
        "p50_p95_p99_s": quantiles,
        "p99_vs_led": {label: round(q[2] / quantiles["LED"][2], 3) for label, q in quantiles.items()},
        "ci95_vs_led": {label: interval(parts, found["LED"]) for label, parts in found.items() if label != "LED"},
        "late_vs_led_by_seed": (p99["late"] / p99["LED"]).round(3).tolist(),
        "meta": {"seeds": seeds, "workflows_per_seed": runs, "load": LOAD, "delays_s": [REPORT_S, GRANT_S, SERVE_S]},
    }


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))

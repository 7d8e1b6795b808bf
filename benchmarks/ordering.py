"""Whose work runs next: each paper's claim about ordering, measured here, beside what the paper reports.

    python benchmarks/ordering.py [--quick] [--json]

Every number is the mean (ratios: geometric mean) over seeds of simulations with the real scheduler in the loop; nothing
is a constant. The suites behind it are `swarmx evaluate --suite ordering_saga|ordering_justitia|...`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from swarmx.engine import EngineConstants
from swarmx.ordering import ORDERS
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.sim.suites import (
    ordering_agentrm,
    ordering_aios,
    ordering_giants,
    ordering_inversion,
    ordering_justitia,
    ordering_saga,
    ordering_spoq,
)
from swarmx.types import Call, Prediction, ReplicaState

QUICK_SEEDS, SEEDS = (0, 1), tuple(range(8))
WAITING = 10_000


def run(quick: bool) -> dict[str, Any]:
    """All claims. quick : two seeds and short runs, some four minutes of one core; else eight seeds and long runs"""
    seeds = QUICK_SEEDS if quick else SEEDS
    spoq = ordering_spoq.claims(seeds, quick)
    aios = ordering_aios.claims(seeds, quick)
    return {
        "saga": ordering_saga.claims(seeds, quick),
        "justitia": ordering_justitia.claims(seeds, quick),
        "spoq": spoq["spoq_waves"],
        "ready_list": spoq["ready_list"],
        "inversion": ordering_inversion.claims(seeds, quick),
        "jain_124": aios["jain_124"],
        "aios": aios,
        "agentrm": ordering_agentrm.claims(seeds, quick),
        "giants": ordering_giants.claims(seeds, quick),
        "step_us": {name: step_us(name, 100 if quick else 400) for name in ORDERS},
        "paper": {
            suite.name.removeprefix("ordering_"): dict(suite.paper)
            for suite in (
                ordering_saga.SUITE, ordering_justitia.SUITE, ordering_spoq.SUITE, ordering_aios.SUITE,
                ordering_agentrm.SUITE,
            )
        },
        "meta": {"seeds": list(seeds), "quick": quick},
    }  # fmt: skip


def step_us(order: str, steps: int) -> float:
    """Median microseconds of one ordering step with 10,000 calls waiting.

    The first call leaves the queue for a replica, the discipline is told, and another call arrives.
    """
    scheduler = preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order=order, tier="neural")
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    sure = Prediction(QuantileGrid.point(10.0))
    calls = [
        Call(f"c{i}", "m", i / 1000, prompt_tokens=10, tenant=f"t{i % 100}", workflow_id=f"w{i // 4}")
        for i in range(WAITING + 2 * steps)
    ]
    taken = []
    queue, observers, intake = scheduler.queue, scheduler.observers, scheduler.intake
    for call in calls[:WAITING]:
        queue.add(intake.entry(call, sure, call.arrival_s, scheduler.cluster, False))
    for i in range(steps):
        now = 11.0 + i / 1000
        entry = intake.entry(calls[WAITING + i], sure, now, scheduler.cluster, False)
        began = time.perf_counter()
        observers.hooks.passed(now)
        queue.settle()
        first = queue.slice(0, 1)[0]
        queue.start(first)
        observers.started(first, now)
        queue.add(entry)
        queue.settle()
        taken.append(time.perf_counter() - began)
        observers.stopped(first, 10.0, now, True)
    return round(sorted(taken)[len(taken) // 2] * 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds and short runs")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    found = run(options.quick)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, part in found.items():
        print(name)
        for key, value in part.items() if isinstance(part, dict) else [("", part)]:
            print(f"  {key:45} {value}")


if __name__ == "__main__":
    main()

"""One scaling step, and what scalers cost at equal latency.

    python benchmarks/scaling.py [--quick] [--json]          swarmx bench scaling [--quick] [--json]
    python benchmarks/scaling.py --report out/report.json --picture docs/scaling_ramp.svg

`step`: 50 models, 1,000 replicas, 10,000 live workflows of three calls each: from the book of live work to decisions,
as it is, with a forecast for every workflow, and with a budget that is too small. CPU milliseconds of one core.
`held`: `tail_demand`'s replica-seconds where it is as good as a rival, over the rival's, and what the KEDA law does on
the ramp, with intervals and limits; `rows`: the runs behind them. `--picture` draws the frontiers of a report of
`swarmx evaluate --suite scaling_...`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.files import replacing
from swarmx.quantiles import QuantileGrid
from swarmx.scaler import Scaler
from swarmx.scaling import Bounds, PoolSample, ReplicaView, scaling_preset
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.sim.report import read_report
from swarmx.sim.report_frontier import drawing
from swarmx.types import CallRecord

sys.path.insert(0, str(Path(__file__).parent))
from _scaling_held import run as held_to  # type: ignore[import-not-found]

MODELS, REPLICAS, WORKFLOWS, CALLS = 50, 1000, 10_000, 3
STEP_MS = 50.0  # what a step may take


def step_times(repeats: int, budget: float | None = None, forecasts: bool = False) -> dict[str, float]:
    """CPU milliseconds of one step: demand of all models, policy, bounds, budget, choice of replicas, receipts."""
    rng = np.random.default_rng(0)
    live = busy_book(rng)
    for workflow in range(WORKFLOWS if forecasts else 0):
        live.foresee(f"w{workflow}", {f"m{m}": QuantileGrid.point(20.0) for m in rng.integers(MODELS, size=4)})
    policy, _ = scaling_preset("tail_demand")
    scaler = Scaler("tail_demand", policy, Bounds(1, 200), budget=budget)
    times = []
    for repeat in range(repeats):
        samples = [pool_sample(f"m{m}", 5.0 * repeat, rng) for m in range(MODELS)]
        begun = time.process_time()
        demands = live.demands(1000.0)
        scaler.step([replace(s, demand=demands[s.pool]) for s in samples])
        times.append((time.process_time() - begun) * 1e3)
    low, middle, high = np.quantile(times[1:], [0.0, 0.5, 0.99])
    told = {"min_ms": float(low), "median_ms": float(middle), "p99_ms": float(high)}
    return {**told, "repeats": repeats - 1, "live_calls": len(live)}


def busy_book(rng: np.random.Generator) -> LiveWork:
    """Live workflows over all models: each call type is followed by calls of two other models."""
    records = []
    for i in range(MODELS * 40):
        m, start = i % MODELS, float(rng.uniform(0, 100))
        lengths = rng.exponential(10.0, 3)
        for k in range(3):
            parent = None if k == 0 else f"{i}.0"
            begin = start if k == 0 else start + lengths[0]
            model = f"m{(m + 7 * k) % MODELS}"
            record = CallRecord(f"{i}.{k}", model, begin, "ok", str(i), parent, type=f"t{i % 4}", dispatched_s=begin,
                                finished_s=begin + float(lengths[k]))  # fmt: skip
            records.append(record)
    live = LiveWork(fit_profiles(records, windows_to(90.0)))
    for i in range(WORKFLOWS * CALLS):
        model, type_ = f"m{int(rng.integers(MODELS))}", f"t{int(rng.integers(4))}"
        at = float(rng.uniform(940, 1000))
        live.arrive(str(i), model, type_, at, is_first=i % CALLS == 0, workflow=f"w{i // CALLS}")
        if rng.random() < 0.7:
            live.started(str(i), at)
    return live


def pool_sample(pool: str, now: float, rng: np.random.Generator) -> PoolSample:
    views = tuple(
        ReplicaView(f"{pool}-{i}", in_flight=int(rng.integers(0, 40)), slots=32) for i in range(REPLICAS // MODELS)
    )
    return PoolSample(pool, now, views, 50.0, 500.0, 1e4 + now, 1e4 + now, 10.0, 0.5, 1e4, 1e4)


def run(quick: bool = False) -> dict[str, Any]:
    """Everything above as one record."""
    repeats = 20 if quick else 100
    steps = {
        "step": step_times(repeats),
        "step_with_forecasts": step_times(repeats, forecasts=True),
        "step_under_budget": step_times(repeats, 500.0),
    }
    worst = max(found["median_ms"] for found in steps.values())
    return {**steps, "slowest_step_ms": worst, "step_limit_ms": STEP_MS, **held_to(quick)}


def draw(report: Path, picture: Path) -> None:
    """Write the frontiers of a report as one SVG."""
    with replacing(picture) as temporary:
        temporary.write_text(drawing(read_report(report)), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.report and chosen.picture:
        draw(chosen.report, chosen.picture)
        return
    print(json.dumps(run(chosen.quick), indent=None if chosen.json else 2))


if __name__ == "__main__":
    main()

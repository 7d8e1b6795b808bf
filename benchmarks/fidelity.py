"""How close the simulator comes to real engines: recorded logs and published load curves.

    python benchmarks/fidelity.py [--log LOG] [--curves PARQUET] [--vidur PYTHON] [--json]

A log is replayed on its own replicas, as a whole, and its second half with constants fitted to its first half. A load
curve (inference-perf's stage summaries) is simulated stage by stage, the service model fitted to the other carried
stages of the same server, never to the stage itself. `--vidur` names the Python of an environment with Vidur.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _vidur_beside import beside

from swarmx.logs.table import read_log
from swarmx.logs.workflows import workflows_of
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, Timing, arriving, percentiles, simulate
from swarmx.sim.profiles import Profile, Stage, fit_load_curve, load_curves
from swarmx.sim.replay import AsRecorded, fidelity
from swarmx.sim.suites.engines import recorded_cluster
from swarmx.sim.workload import poisson
from swarmx.types import CallRecord

SHIPPED = Path(__file__).parents[1] / "data" / "execution_log.parquet"
STAGE_S = 60.0  # length of a stage of the load tests
SLOTS = 128  # running requests at which the published servers saturate


def stage_figures(stage: Stage, profile: Profile, seed: int) -> dict[str, Any]:
    """The stage simulated on one engine, Poisson arrivals as the load generator makes them."""
    rng = np.random.default_rng(seed)
    n = max(int(stage.requested_per_s * STAGE_S), 60)
    levels, tokens = zip(*stage.output_quantiles, strict=True)
    lengths = np.interp(rng.random(n), levels, tokens)
    flows = [
        SimWorkflow(f"w{i}", 0.0, (SimCall("c", float(max(round(x), 1)), prompt_tokens=round(stage.prompt_tokens)),))
        for i, x in enumerate(lengths)
    ]
    spec = ReplicaSpec("r", batched=True, slots=SLOTS, service=profile.constants, chunk_tokens=2048)
    timing = Timing(decision_s=profile.prefill_base_s)  # what the first token takes besides the prompt's tokens
    workload = arriving(flows, stage.requested_per_s, poisson, rng)
    to = {f"{w.id}/c": "r" for w in workload.workflows}
    table = simulate(workload, Cluster((spec,)), AsRecorded(to), timing=timing)
    latency, first = percentiles(table.call_latency_s()), percentiles(table.ttft_s())
    return {
        "per_s": stage.requested_per_s,
        "latency_ratio": [round(s / r, 3) for s, r in zip(latency, stage.latency_s, strict=True)],
        "ttft_ratio": [round(s / r, 3) for s, r in zip(first, stage.ttft_s, strict=True)],
        "latency_s": [round(v, 3) for v in stage.latency_s],
    }


def curves(path: Path) -> dict[str, Any]:
    """Server -> what was found for each carried stage, fitted on the others."""
    found: dict[str, Any] = {}
    for name, stages in load_curves(path).items():
        carried = [s for s in stages if s.is_carried]
        if len(carried) < 4:
            found[name] = f"{len(carried)} carried stages; four are needed to leave one out"
            continue
        found[name] = [
            stage_figures(stage, fit_load_curve([s for s in carried if s is not stage]), seed)
            for seed, stage in enumerate(carried)
        ]
    return found


def halves(records: Sequence[CallRecord]) -> tuple[list[CallRecord], list[CallRecord]]:
    """Workflows that began in the first and in the second half of the log's calls."""
    begun: dict[str, float] = {}
    for r in records:
        name = r.workflow_id or r.call_id
        begun[name] = min(begun.get(name, np.inf), r.arrival_s)
    middle = float(np.median([begun[r.workflow_id or r.call_id] for r in records]))
    first = [r for r in records if begun[r.workflow_id or r.call_id] < middle]
    return first, [r for r in records if begun[r.workflow_id or r.call_id] >= middle]


def log(path: Path) -> list[dict[str, Any]]:
    """Recorded against simulated percentiles of the whole log, and of its second half with constants of its first."""
    records = list(read_log(path))
    first, second = halves(records)
    out = []
    for part, fitted, replayed in (("whole log", records, records), ("held-out half", first, second)):
        cluster = recorded_cluster(fitted)
        for arrivals in ("recorded", "graph"):
            for found in fidelity(workflows_of(replayed), cluster, arrivals=arrivals)[0]:
                out.append(
                    {
                        "part": part,
                        "arrivals": arrivals,
                        "quantity": found.quantity,
                        "n": found.n,
                        "recorded_s": [round(v, 3) for v in found.recorded_s],
                        "ratio": [round(v, 3) for v in found.ratios],
                    }
                )
    return out


def run(quick: bool = False, data: Path | str = SHIPPED) -> dict[str, Any]:
    """The replay of a log, as `swarmx bench fidelity` prints it; it is quick anyway."""
    return {"log": log(Path(data))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, help="an execution log with replicas and first tokens")
    parser.add_argument("--curves", type=Path, help="inference-perf stage summaries as Parquet")
    parser.add_argument("--vidur", type=Path, help="the Python of an environment that has Vidur")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    if arguments.log:
        result["log"] = log(arguments.log)
    if arguments.curves:
        result["curves"] = curves(arguments.curves)
    if arguments.vidur:
        result["vidur"] = beside(arguments.vidur)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for row in result.get("log", []):
        print(f"{row['part']:14s} {row['arrivals']:9s} {row['quantity']:12s} n={row['n']:5d}  "
              f"recorded P50/P95/P99 {row['recorded_s']} s, simulated x{row['ratio']}")  # fmt: skip
    for name, stages in result.get("curves", {}).items():
        print(name)
        for row in stages if isinstance(stages, list) else ():
            print(f"  {row['per_s']:6.1f}/s  latency x{row['latency_ratio']}  first token x{row['ttft_ratio']}")
    for row in result.get("vidur", []):
        print(f"{row['setting']:14s} n={row['n']}  Vidur latency P50/P95/P99 {row['vidur_latency_s']} s, ours "
              f"x{row['latency_ratio']}; first token {row['vidur_ttft_s']} s, ours x{row['ttft_ratio']}")  # fmt: skip


if __name__ == "__main__":
    main()

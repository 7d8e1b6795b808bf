"""The endpoint picker behind a real Envoy: cost per pick, added latency, and what its choices are worth.

    python benchmarks/picker.py [--quick] [--json] [--preset late,push] [--trained] [--load 0.9] [--slots 1] [--seeds 4]
        [--cost]

Everything runs on this machine: emulated engines in one process, Envoy with one thread, the picker in one process,
the client here. Two floors are measured in the same run, in blocks that alternate with the picker's: Envoy's own
round robin over the same engines, and a picker that thinks nothing, which shows what the protocol costs by itself;
no two prompts are alike. Answers are watched by a second filter, for which they do not wait; `added_inline_ms` is
what it costs where they pass through the picker, as Gateway API has it. `picks_per_s` is picks per CPU second of
the picker's process: what saturates one core; `picks_per_wall_s` is what came through here with everything else on
the same cores. The third part sends one seeded agent workload through Envoy's round robin, its least_request and
the picker over a heterogeneous pool: without a predictor, and with `--trained` also with one that has learned from
earlier prompts of the same kind; then the added latency is also that of a picker that predicts. Several seeds are
sent one after the other, all routers each, and their workflows counted together. `at_rest_cpu` is the share of a core
that a picker of 8 and of 100 endpoints uses while nobody asks it; `--cost` stops after that.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import _http_suite as suite
from _picker_cost import SEED, cost
from _picker_front import front, ready_engines
from _picker_rest import at_rest
from _virtual import interval

from swarmx.adapters.envoy.bootstrap import Balance
from swarmx.presets import PRESETS

LOAD, SCALE = 0.75, 2.0
ENDPOINTS = (8, 100)  # of the pickers whose rest is measured
STALLED_S, ATTEMPTS = 0.25, 3  # an arm in which the client itself sent late is measured again
TRAINED = "_trained"  # ends the name of an arm with a predictor


def train(folder: Path) -> Path:
    """A predictor that has learned from earlier prompts of the same kind."""
    from swarmx.predict.train import train as fit

    out = folder / "model"
    fit(suite.training_records(3000, seed=SEED + 1), out)
    return out


async def arm(
    folder: Path, runs: Sequence[suite.Run], balance: Balance, preset: str, model: Path | None, slots: int
) -> tuple[suite.Outcome, int]:
    """What one router made of the workload on engines started anew, and how many attempts that took."""
    tries = 0
    while tries < ATTEMPTS:
        tries += 1
        ports = suite.free_ports(len(suite.SPEEDS) + 4)
        replicas = ports[:-4]
        with suite.processes(folder) as group:
            suite.start_mocks(group, replicas, SCALE, slots=slots)
            await ready_engines(replicas)
            async with front(group, replicas, ports[-4:], balance, preset, model, slots=slots) as at:
                outcome = await suite.drive(at.url, runs, len(runs) // 5)
        if outcome.row()["client_late_p99_s"] <= STALLED_S:
            break
    return outcome, tries


async def worth(
    folder: Path, workflows: int, presets: Sequence[str], model: Path | None, load: float, slots: int, seeds: int
) -> tuple[dict[str, suite.Outcome], dict[str, dict[str, Any]]]:
    """Seeded agent workloads over a heterogeneous pool, router by router: all seeds together, and as rows."""
    rate = load * suite.capacity_per_s(SCALE, slots=slots) / suite.CALLS_PER_RUN
    arms: list[tuple[str, Balance, str, Path | None]] = [
        ("envoy_round_robin", "round_robin", "", None),
        ("envoy_least_request", "least_request", "", None),
        *((name, "picker", name, None) for name in presets),
    ]
    if model is not None:
        arms.append((presets[0] + TRAINED, "picker", presets[0], model))
    found = {name: suite.Outcome() for name, *_ in arms}
    attempts = dict.fromkeys(found, 0)
    for seed in range(SEED, SEED + seeds):
        runs = suite.workload(seed, workflows, rate)
        for name, balance, preset, used in arms:
            outcome, tries = await arm(folder, runs, balance, preset, used, slots)
            found[name].add(outcome)
            attempts[name] += tries
            print(f"seed {seed}, {name}: {json.dumps(outcome.row())}", file=sys.stderr, flush=True)
    return found, {name: {**outcome.row(), "attempts": attempts[name]} for name, outcome in found.items()}


def ratios(found: dict[str, suite.Outcome], mine: Sequence[str]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Workflow P99 of ours over each other router's, and its 95 % interval by workflows, which all had alike."""
    ratio, within = {}, {}
    for ours, other in itertools.product(mine, (name for name in found if name not in mine)):
        a, b = found[ours].run_s, found[other].run_s
        ratio[f"{ours}_vs_{other}"] = round(float(np.quantile(a, 0.99) / np.quantile(b, 0.99)), 3)
        within[f"{ours}_vs_{other}"] = interval([a], [b])
    return ratio, within


def run(
    quick: bool = False,
    presets: Sequence[str] = ("late",),
    trained: bool = False,
    load: float = LOAD,
    slots: int = suite.SLOTS,
    seeds: int = 1,
    workflows: int | None = None,
    costs_only: bool = False,
) -> dict[str, Any]:
    """Everything, as `swarmx bench picker` prints it.

    load : of the pool in the agent workload; slots : of each of its replicas; seeds, workflows : of it, per seed;
    costs_only : without it
    """
    if "llmd_predicted" in PRESETS and "llmd_predicted" not in presets:
        presets = (*presets, "llmd_predicted")
    workflows = workflows or (120 if quick else 320)

    async def all_of_it(folder: Path) -> dict[str, Any]:
        model = train(folder) if trained else None
        spent = await cost(folder, quick, model)
        spent["at_rest_cpu"] = {n: round(await at_rest(folder, n), 4) for n in ENDPOINTS}
        if costs_only:
            return spent
        found, rows = await worth(folder, workflows, presets, model, load, slots, seeds)
        ratio, within = ratios(found, [name for name in (presets[0], presets[0] + TRAINED) if name in found])
        lost = sum(row["lost"] for row in rows.values())
        meta = {"load": load, "speeds": suite.SPEEDS, "slots": slots, "seeds": [SEED, SEED + seeds - 1]}
        return {
            **spent, "failed": spent["failed"] + lost, "p99_ratio": ratio, "p99_ratio_95": within, "workload": rows,
            "meta": meta,
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(all_of_it(Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter blocks, 120 workflows instead of 320")
    parser.add_argument("--json", action="store_true", help="print JSON on one line")
    parser.add_argument("--preset", default="late", help="presets of the picker, the first one is compared")
    parser.add_argument("--trained", action="store_true", help="add an arm with a trained predictor")
    parser.add_argument("--load", type=float, default=LOAD, help="offered work over capacity in the agent workload")
    parser.add_argument("--slots", type=int, default=suite.SLOTS, help="calls that an engine of it runs at once")
    parser.add_argument("--seeds", type=int, default=1, help="agent workloads, counted together")
    parser.add_argument("--workflows", type=int, help="of each seed (default: 320, with --quick 120)")
    parser.add_argument("--cost", action="store_true", help="only what a pick costs, without the agent workload")
    given = parser.parse_args()
    presets = tuple(given.preset.split(","))
    result = run(given.quick, presets, given.trained, given.load, given.slots, given.seeds, given.workflows, given.cost)
    print(json.dumps(result, indent=None if given.json else 2))


if __name__ == "__main__":
    main()

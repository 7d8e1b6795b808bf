"""The request router inside Ray Serve, on emulated engines, beside Serve's own routers.

    swarmx bench ray [--quick] [--json]

Twelve replicas (4 each at speed 1, 0.6 and 0.35; one call at a time) that sleep by the engine model; agent workflows
(a plan, three to eight pieces of work at once, a merge) at 90 % of their capacity, called through a deployment handle;
arrivals, shapes and prompts by seed, the same for every router. `late` and `push` predict with a model that is trained
here, on other prompts of the same kind; LED is told the true speeds. The replicas stay while the router changes. Then
the cost of a call: single calls that answer at once, the routers in turn, each against a router that does nothing.
`scale` makes the engines slower, so that Ray's own milliseconds count for less.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)
sys.path[:] = [p for p in sys.path if p not in ("", HERE)] + [HERE]  # last: this file has the name of the package

import numpy as np  # noqa: E402
from _http_suite import Outcome  # noqa: E402
from _ray_suite import (  # noqa: E402
    CALLS_PER_RUN,
    ONGOING,
    SLOTS,
    Cluster,
    capacity_per_s,
    drive,
    hand_overs,
    latencies,
    ready,
    training_records,
    workload,
)

LOAD = 0.9
RESAMPLES = 500


def routers(model: str, quick: bool) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name -> (its config, max_ongoing_requests). model : directory of the predictor"""
    from ray.serve.config import RequestRouterConfig

    from swarmx.adapters.ray_serve.settings import router_config

    turn = "ray.serve.experimental.round_robin_router.RoundRobinRouter"
    budget = {"predictor": {"budget_s": 0.05}}
    known: dict[str, tuple[Callable[[], Any], int]] = {
        "serve power of two": (RequestRouterConfig, ONGOING),
        "serve round robin": (lambda: RequestRouterConfig(request_router_class=turn), ONGOING),
        "LED": (lambda: router_config("least_outstanding_per_speed"), ONGOING),
        "push": (lambda: router_config("push", model, budget), ONGOING),
        "late": (lambda: router_config("late", model, budget), ONGOING),
    }
    if not quick:
        known["late, no prediction"] = (lambda: router_config("late"), ONGOING)
        known["serve power of two, strict slots"] = (RequestRouterConfig, SLOTS)
    return known


def measure(cluster: Cluster, name: str, config: Any, ongoing: int, seeds: range, runs: int) -> Outcome:
    """One router over all seeds; prints a line."""
    handle = cluster.handle(config, ongoing)
    whole = Outcome()

    async def all_seeds() -> None:
        await ready(handle, name.startswith("late"))
        for seed in seeds:
            warm = max(20, runs // 7)
            rate = LOAD * capacity_per_s(cluster.scale) / CALLS_PER_RUN
            found = await drive(handle, workload(seed, runs + warm, rate), warm)
            for part in ("call_s", "run_s", "lateness"):
                getattr(whole, part).extend(getattr(found, part))
            whole.lost += found.lost

    asyncio.run(all_seeds())
    print(f"{name}: {json.dumps(whole.row())}", file=sys.stderr, flush=True)
    return whole


def ratio(ours: Outcome, theirs: Outcome) -> dict[str, Any]:
    """Workflow P99, ours / theirs, with a 95 % bootstrap interval; both had the same workflows in the same order."""
    a, b, rng = np.array(ours.run_s), np.array(theirs.run_s), np.random.default_rng(0)
    picks = rng.integers(0, a.size, (RESAMPLES, a.size))
    draws = np.quantile(a[picks], 0.99, axis=1) / np.quantile(b[picks], 0.99, axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    value = float(np.quantile(a, 0.99) / np.quantile(b, 0.99))
    return {"value": round(value, 3), "ci95": [round(float(low), 3), round(float(high), 3)]}


def overhead(cluster: Cluster, pairs: int) -> dict[str, Any]:
    """What a call costs more than with a router that does nothing, by router; the queue owner's round trip, and for
    how long a slot is empty between a call and the next one that waits for it."""
    from ray.serve.config import RequestRouterConfig

    from swarmx.adapters.ray_serve.counters import router_of
    from swarmx.adapters.ray_serve.settings import router_config

    configs = {
        "nothing": RequestRouterConfig(request_router_class="_ray_nothing.Nothing"),
        "pow2": RequestRouterConfig(),
        "immediate": router_config("push"),
        "late": router_config("late"),
    }
    handles: dict[str, Any] = {}

    async def compare() -> dict[str, list[float]]:
        for name, config in configs.items():
            handles[name] = await asyncio.to_thread(cluster.handle, config)
            await ready(handles[name], name == "late")
        await latencies(handles, 30)
        return await latencies(handles, pairs) | {"hand_over": await hand_overs(handles["late"])}

    found = {name: np.array(values) for name, values in asyncio.run(compare()).items()}
    rows = {}
    for name in ("pow2", "immediate", "late"):
        p99 = np.quantile(found[name], 0.99) - np.quantile(found["nothing"], 0.99)
        rows[name] = {"p50": round(float(np.median(found[name] - found["nothing"])), 3), "p99": round(float(p99), 3)}
    rows["owner_round_trip"] = _quantiles(1e3 * np.array(router_of(handles["late"]).owner_round_trips_s))
    rows["hand_over"] = _quantiles(found["hand_over"])
    rows["nothing, in all"] = _quantiles(found["nothing"])
    return rows


def _quantiles(values: Any) -> dict[str, float]:
    return {f"p{q}": round(float(np.quantile(values, q / 100)), 3) for q in (50, 99)}


def train(folder: str) -> str:
    """A predictor that has learned from earlier prompts of the same kind."""
    from swarmx.predict.train import TrainConfig
    from swarmx.predict.train import train as fit

    out = Path(folder) / "model"
    fit(training_records(4000, seed=7), out, TrainConfig(plots=False))
    return str(out)


def run(
    quick: bool = False, data: str | None = None, seeds: int = 0, runs: int = 0, scale: float = 0.0,
    only: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    """The figures of the module's docstring. data : unused, every benchmark has it"""
    seeds, runs, scale = seeds or (1 if quick else 3), runs or (120 if quick else 250), scale or (1.0 if quick else 2.0)
    with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
        model = train(folder)
        with Cluster(scale) as cluster:
            found = {
                name: measure(cluster, name, config(), ongoing, range(1, seeds + 1), runs)
                for name, (config, ongoing) in routers(model, quick).items()
                if not only or name in only
            }
            costs = overhead(cluster, 150 if quick else 600)
    pairs = {
        "late_vs_pow2": ("late", "serve power of two"),
        "late_vs_led": ("late", "LED"),
        "push_vs_pow2": ("push", "serve power of two"),
        "push_vs_led": ("push", "LED"),
        "led_vs_pow2": ("LED", "serve power of two"),
        "late_vs_round_robin": ("late", "serve round robin"),
        "late_without_prediction_vs_led": ("late, no prediction", "LED"),
        "late_vs_pow2_strict": ("late", "serve power of two, strict slots"),
    }
    ratios = {name: ratio(found[a], found[b]) for name, (a, b) in pairs.items() if a in found and b in found}
    return {
        "p99_ratio": {name: r["value"] for name, r in ratios.items()},
        "overhead_ms": costs["immediate"],
        "lost": sum(outcome.lost for outcome in found.values()),
        "ci95": {name: r["ci95"] for name, r in ratios.items()},
        "costs_ms": costs,
        "rows": {name: outcome.row() for name, outcome in found.items()},
        "meta": {"seeds": seeds, "workflows_per_seed": runs, "scale": scale, "load": LOAD, "arm": "trained"},
    }


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))

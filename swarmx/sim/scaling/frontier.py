"""Attainment and latency against cost: every policy with its knob turned, and the picture of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from swarmx.files import replacing
from swarmx.sim.scaling.scenario import Build, ScalingRun, run

Knob = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Point:
    """One policy at one setting, geometric means over seeds (arithmetic for attainment and flaps).

    p95_s, p99_s : of workflows; replica_seconds : from order to end; cost : the same, priced
    """

    policy: str
    knob: str
    seeds: int
    attainment: float
    p50_s: float
    p95_s: float
    p99_s: float
    replica_seconds: float
    mean_replicas: float
    cost: float
    flaps: float

    def record(self) -> dict[str, Any]:
        return asdict(self)


def frontier(build: Build, knobs: Mapping[str, Sequence[Knob]], seeds: Iterable[int]) -> list[Point]:
    """Every policy at every setting of its knob, the same seeds for all."""
    scenarios = {seed: build(seed) for seed in seeds}
    points = []
    for policy, settings in knobs.items():
        for knob in settings:
            found = [run(scenario, policy, options=knob, seed=seed) for seed, scenario in scenarios.items()]
            points.append(_point(policy, ", ".join(f"{k}={v:g}" for k, v in knob.items()), found))
    return points


def _point(policy: str, knob: str, found: Sequence[ScalingRun]) -> Point:
    quantiles = [np.quantile(one.table.workflow_latency_s(), [0.5, 0.95, 0.99]) for one in found]
    p50, p95, p99 = np.exp(np.log(quantiles).mean(axis=0)).tolist()
    seconds, replicas, cost = (
        float(np.exp(np.mean([np.log(getattr(one, name)) for one in found])))
        for name in ("replica_seconds", "mean_replicas", "cost")
    )
    attainment, flaps = (float(np.mean([getattr(one, name) for one in found])) for name in ("attainment", "flaps"))
    return Point(policy, knob, len(found), attainment, p50, p95, p99, seconds, replicas, cost, flaps)


def cost_at(points: Sequence[Point], metric: Literal["attainment", "p95_s", "p99_s"], value: float) -> float | None:
    """Replica-seconds at which this frontier reaches the value, log cost linear between its cheapest points.

    None when no point is as good; the cheapest point's cost when all are.
    """
    sign = 1.0 if metric == "attainment" else -1.0
    best: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: p.replica_seconds):
        quality = sign * float(getattr(point, metric))
        if not best or quality > best[-1][1]:
            best.append((float(np.log(point.replica_seconds)), quality))
    wanted = sign * value
    if not best or best[-1][1] < wanted:
        return None
    costs, qualities = np.array(best).T
    return float(np.exp(np.interp(wanted, qualities, costs)))


def picture(points: Sequence[Point], path: Path, metric: Literal["attainment", "p95_s"] = "attainment") -> None:
    """Draw metric against mean replicas, one line per policy, and write it (.svg or .png)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise ImportError("pictures need matplotlib; install swarmx-scheduler[train]") from problem
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for policy in dict.fromkeys(p.policy for p in points):
        mine = sorted((p for p in points if p.policy == policy), key=lambda p: p.mean_replicas)
        axes.plot([p.mean_replicas for p in mine], [getattr(p, metric) for p in mine], marker="o", label=policy)
    axes.set_xlabel("mean replicas, starting and draining ones included")
    axes.set_ylabel("share of calls within their limits" if metric == "attainment" else "workflow P95, s")
    if metric == "p95_s":
        axes.set_yscale("log")
    axes.legend()
    axes.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "svg")

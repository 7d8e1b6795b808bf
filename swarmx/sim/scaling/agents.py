"""Agent runs over several pools of one-call-at-a-time replicas: bursts, a daily shape, a mix, a change of fan-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import pi, sin

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants
from swarmx.scaling.foretell import Forecaster
from swarmx.scaling.profiles import Profiles, fit_profiles, windows_to
from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.scaling.fleet import ColdStart, Kind
from swarmx.sim.scaling.forecasts import Forecast, Forecasts, TrueOutlook, calibrated, learn
from swarmx.sim.scaling.latency import QueueLatency
from swarmx.sim.scaling.oracle import Seconds, ideal
from swarmx.sim.scaling.scenario import Scenario
from swarmx.sim.scaling.watch import Limits
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import SimCall, SimWorkflow, Workload
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Rate = Callable[[float], float]
TOKEN_S = 0.1
POOLS = {"plan": "planner", "code": "worker", "repair": "worker", "search": "worker"}  # others: "writer"
SAMPLE = 400  # workflows that profiles and forecasts are learned from
LAG_S = 2.5  # from an event until a scaler that looks every 5 s looks, on average


def seconds(call: SimCall) -> float:
    """Service time of a call on a replica of these scenarios."""
    return call.output_tokens * TOKEN_S


@dataclass(frozen=True, slots=True)
class Waves:
    """A sine with bursts: rates a second around `mean`, multiplied during bursts.

    depth, period_s : of the sine; burst_every_s : mean time between bursts; factor, length_s : their ranges
    """

    mean: float
    depth: float = 0.6
    period_s: float = 3600.0
    burst_every_s: float = 1500.0
    factor: tuple[float, float] = (2.5, 4.5)
    length_s: tuple[float, float] = (120.0, 300.0)

    def draw(self, span_s: float, rng: np.random.Generator) -> Rate:
        """One course of the rate; bursts at random times."""
        bursts: list[tuple[float, float, float]] = []
        at = float(rng.exponential(self.burst_every_s))
        while at < span_s:
            length = float(rng.uniform(*self.length_s))
            bursts.append((at, at + length, float(rng.uniform(*self.factor))))
            at += length + float(rng.exponential(self.burst_every_s))

        def rate(t: float) -> float:
            base = self.mean * (1 + self.depth * sin(2 * pi * t / self.period_s))
            return base * max((f for a, b, f in bursts if a <= t < b), default=1.0)

        return rate


def thinned(rate: Rate, most: float, span_s: float, rng: np.random.Generator) -> Array:
    """Times of a Poisson process of that rate, which nowhere exceeds `most`."""
    times = np.sort(rng.uniform(0.0, span_s, rng.poisson(most * span_s)))
    return times[rng.uniform(size=times.size) * most < np.array([rate(float(t)) for t in times])]


def in_pools(workflow: SimWorkflow) -> SimWorkflow:
    """The workflow with each call's model named after its type."""
    calls = tuple(replace(c, model=POOLS.get(c.type or "", "writer")) for c in workflow.calls)
    return replace(workflow, calls=calls)


def agent_runs(n: int, call_s: float, rng: np.random.Generator) -> list[SimWorkflow]:
    """n workflows of the usual mix over the pools `planner`, `worker` and `writer`, with calls of that mean length."""
    return [in_pools(w) for w in mix(n, Sizes(mean_tokens=call_s / TOKEN_S, cv=1.0, tool_s=2.0), rng)]


def ideal_log(workflows: Sequence[SimWorkflow], of: Seconds) -> list[CallRecord]:
    """The log that these workflows would leave without queueing, call by call in their order."""
    records = []
    for workflow in workflows:
        schedule = ideal(workflow, of)
        ids = [f"{workflow.id}/{call.key}" for call in workflow.calls]
        for place, (call, start, end) in enumerate(schedule):
            parent = max(call.parents, key=lambda p: schedule[p][2]) if call.parents else None
            record = CallRecord(
                ids[place], call.model, start, "ok", workflow.id, None if parent is None else ids[parent]
            )
            times = {"dispatched_s": start, "finished_s": end, "output_tokens": round(call.output_tokens)}
            records.append(replace(record, type=call.type, prompt_tokens=call.prompt_tokens, **times))  # type: ignore[arg-type]
    return records


def learned(workflows: Sequence[SimWorkflow], of: Seconds, horizon_s: float) -> Profiles:
    """Profiles from the log that these workflows would leave without queueing."""
    return fit_profiles(ideal_log(workflows, of), windows_to(horizon_s))


def agents(
    seed: int,
    call_s: float = 10.0,
    cold_s: float = 60.0,
    waves: Waves = Waves(0.05),
    span_s: float = 7200.0,
    name: str = "agents",
    arrivals: Array | None = None,
) -> Scenario:
    """Agent runs arriving in waves; the load of the later pools differs from the front's.

    arrivals : recorded times instead of the waves
    """
    rng = np.random.default_rng([seed, 1])
    if arrivals is None:
        most = waves.mean * (1 + waves.depth) * waves.factor[1]
        arrivals = thinned(waves.draw(span_s, rng), most, span_s, rng)
    runs = agent_runs(len(arrivals), call_s, rng)
    workload = Workload(tuple(replace(w, arrival_s=float(t)) for w, t in zip(runs, arrivals, strict=True)))
    cold = ColdStart(cold_s, 0.1, fail_share=0.02, pending_share=0.05, pending_s=cold_s / 2)
    models = ("planner", "worker", "writer")
    base = job_scenario(name, workload, models, cold, profiles_of_runs(call_s, cold_s), call_s)
    return replace(base, forecasts=forecasts_of(workload, call_s))


def forecasts_of(workload: Workload, call_s: float) -> Forecasts:
    """Learned from other runs of the same kind, with what a prompt tells and without it; and the truth."""
    token_s = dict.fromkeys(("planner", "worker", "writer"), TOKEN_S)
    return {
        "trained": lambda: Forecast(_learned_forecaster(call_s, True), token_s, calibrated(_sample(call_s))),
        "no_prompt": lambda: Forecast(_learned_forecaster(call_s, False), token_s),
        "truth": lambda: Forecast(TrueOutlook(workload.workflows), token_s),
    }


@cache
def _learned_forecaster(call_s: float, prompts: bool) -> Forecaster:
    sample = _sample(call_s)
    return learn(sample, ideal_log(sample, seconds), LAG_S, calibrated(sample) if prompts else None)


@cache
def _sample(call_s: float) -> tuple[SimWorkflow, ...]:
    return tuple(agent_runs(SAMPLE, call_s, np.random.default_rng([1_000_000, 2])))


@cache
def profiles_of_runs(call_s: float, cold_s: float) -> Profiles:
    """Learned from other runs of the same kind, the same for every seed."""
    return learned(_sample(call_s), seconds, 1.5 * cold_s)


def job_scenario(
    name: str, workload: Workload, models: Sequence[str], cold: ColdStart, profiles: Profiles, call_s: float
) -> Scenario:
    """Pools of one-at-a-time replicas behind one queue each, oldest workflow first."""
    spec = ReplicaSpec("", service=EngineConstants(TOKEN_S))
    kinds = {(m, "default"): Kind(replace(spec, model=m), cold) for m in models}
    return Scenario(
        name, workload, kinds, dict.fromkeys(models, 2), 1, 60, Limits(total_s=3 * call_s), profiles, seconds,
        QueueLatency(), order=("central_fcfs", {"work_weight": 0.0}),
    )  # fmt: skip


def no_queue_s(workload: Workload, of: Seconds = seconds) -> Array:
    """(workflows,) latency of each when every call starts at once."""
    return np.array([max(end for _, _, end in ideal(w, of)) - w.arrival_s for w in workload.workflows])


SLOW, FAST = "slow", "fast"


def two_kinds(seed: int, cold_s: float = 60.0, span_s: float = 7200.0, redeploy_cost: float = 0.5) -> Scenario:
    """The agent mix on two kinds of devices: eight slow nodes a model at price 1, and any number twice as fast at 2.5.

    Slow ones are cheaper for what they do, but too few for the bursts.
    """
    base = agents(seed, 10.0, cold_s, Waves(0.08), span_s, "two_kinds")
    kinds = {}
    for (model, _), kind in base.kinds.items():
        kinds[model, SLOW] = replace(kind, spec=replace(kind.spec, device=SLOW), limit=8)
        kinds[model, FAST] = replace(kind, spec=replace(kind.spec, device=FAST, speed=2.0), price=2.5)
    return replace(base, kinds=kinds, redeploy_cost=redeploy_cost)


# --- two phases of fan-out ---

PHASES: tuple[tuple[float, float, int], ...] = ((0.5, 6.0, 300), (0.29, 14.0, 300))  # rate, mean fan-out, workflows
STAGES: Mapping[str, tuple[str, float, float]] = {  # type -> pool, mean and standard deviation in seconds
    "outline": ("a", 30.0, 2.0), "search": ("b", 3.0, 0.3), "read": ("b", 2.0, 0.2), "merge": ("a", 25.0, 2.0),
}  # fmt: skip


def fan_out_run(name: str, mean: float, rng: np.random.Generator) -> SimWorkflow:
    """outline -> n searches -> n reads -> merge; n is 5 or 20, so that its mean is the given one."""

    def call(key: str, type_: str, parents: tuple[int, ...] = ()) -> SimCall:
        pool, length, sd = STAGES[type_]
        tokens = max(float(rng.normal(length, sd)), 0.1) / TOKEN_S
        return SimCall(key, tokens, parents, type=type_, model=pool)

    n = 20 if rng.random() < (mean - 5) / 15 else 5
    calls = [call("outline", "outline")]
    calls += [call(f"search{i}", "search", (0,)) for i in range(n)]
    calls += [call(f"read{i}", "read", (1 + i,)) for i in range(n)]
    calls.append(call("merge", "merge", tuple(range(1 + n, 1 + 2 * n))))
    return SimWorkflow(name, 0.0, tuple(calls), kind="research")


def two_phase(seed: int, machines: int = 48, cold_s: float = 30.0, share: float = 1.0) -> Scenario:
    """48 machines for two pools; halfway, fewer workflows arrive and each fans out more than twice as far.

    Profiles come from the first phase alone. share : of each phase's workflows
    """
    rng = np.random.default_rng([seed, 1])
    runs: list[SimWorkflow] = []
    now = 0.0
    for rate, mean, count in PHASES:
        for _ in range(round(share * count)):
            now += float(rng.exponential(1 / rate))
            runs.append(replace(fan_out_run(f"w{len(runs)}", mean, rng), arrival_s=now))
    cold = ColdStart(cold_s, 0.1)
    base = job_scenario("two_phase", Workload(tuple(runs)), ("a", "b"), cold, _first_phase(cold_s), 15.0)
    return replace(base, begin={"a": machines // 2, "b": machines // 2}, maximum=machines, budget=float(machines))


@cache
def _first_phase(cold_s: float) -> Profiles:
    rng = np.random.default_rng([1_000_000, 2])
    return learned([fan_out_run(f"s{i}", PHASES[0][1], rng) for i in range(SAMPLE)], seconds, 1.5 * cold_s)

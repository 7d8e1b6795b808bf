"""How long one event takes the scheduler: a call ends, a place is free, the queue is walked.

    swarmx bench decision --json

For each size (replicas x waiting calls), under `late` with known constants and without predictor: every replica full,
then one call ends and another arrives, over and over. Also the walk alone with every waiting call preferring a busy
replica (the worst case: nothing starts and all are looked at), and how ordering alone grows.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start

SIZES = ((16, 16), (100, 100), (1000, 1000))
GROWTH = ((16, 1000), (100, 1000), (1000, 16), (1000, 100))  # beside these: one of the two larger
SPEEDS = (1.0, 0.6, 0.35)


def crowd(replicas: int, waiting: int, slots: int, rng: np.random.Generator) -> tuple[Scheduler, list[str], int]:
    """A scheduler with full replicas and `waiting` calls in its queue; (scheduler, running calls, next id)."""
    engines = {f"d{v}": EngineConstants(0.015 / v, 0.0005 / v, 1.5e-7 / v, 5e-5 / v) for v in SPEEDS}
    scheduler = preset("late", engines=engines, hold_services=1e9, overtakes=10**9)
    states = [
        ReplicaState(f"r{i}", "m", f"d{SPEEDS[i % 3]}", slots=slots, kv_capacity_tokens=10**7, speed=SPEEDS[i % 3])
        for i in range(replicas)
    ]
    scheduler.replicas_changed(states, 0.0)
    running: list[str] = []
    number = 0
    while len(scheduler.queue) < waiting:
        for decision in scheduler.arrive(*a_call(number, rng), number * 1e-3):
            if isinstance(decision, Start):
                running.append(decision.call_id)
        number += 1
    return scheduler, running, number


def a_call(number: int, rng: np.random.Generator) -> tuple[Call, Prediction]:
    grid = QuantileGrid(LEVELS, np.sort(rng.lognormal(5.5, 1.0, LEVELS.size)))
    call = Call(f"c{number}", "m", number * 1e-3, prompt_tokens=int(rng.integers(50, 1000)))
    return call, Prediction(grid)


def time_events(replicas: int, waiting: int, events: int, slots: int = 8) -> dict[str, Any]:
    """Milliseconds of `finished` (with the walk it triggers) while an arrival each time keeps the queue full."""
    rng = np.random.default_rng(0)
    scheduler, running, number = crowd(replicas, waiting, slots, rng)
    now = number * 1e-3
    arrive_ms, finish_ms, cpu_ms = [], [], []
    gc.disable()
    for _ in range(events):
        now += 0.01
        call, prediction = a_call(number, rng)
        number += 1
        begin = time.perf_counter()
        decisions = scheduler.arrive(call, prediction, now)
        arrive_ms.append(1e3 * (time.perf_counter() - begin))
        victim = running.pop(int(rng.integers(len(running))))
        record = CallRecord(victim, "m", 0.0, "ok", output_tokens=200)
        begin, ran = time.perf_counter(), time.thread_time()
        decisions += scheduler.finished(record, now)
        cpu_ms.append(1e3 * (time.thread_time() - ran))
        finish_ms.append(1e3 * (time.perf_counter() - begin))
        running += [d.call_id for d in decisions if isinstance(d, Start)]
    gc.enable()
    wall, cpu = np.quantile(finish_ms, [0.5, 0.99]), np.quantile(cpu_ms, [0.5, 0.99])
    return {
        **{name: round(float(value), 4) for name, value in zip(("p50_ms", "p99_ms"), wall, strict=True)},
        **{name: round(float(value), 4) for name, value in zip(("cpu_p50_ms", "cpu_p99_ms"), cpu, strict=True)},
        "arrive_p99_ms": round(float(np.quantile(arrive_ms, 0.99)), 4),
        "events": events,
    }


def time_ordering(waiting: int, steps: int = 2000) -> float:
    """Microseconds of one arrival and one removal in a queue of that length, replicas all full."""
    rng = np.random.default_rng(1)
    scheduler, _, number = crowd(4, waiting, 1, rng)
    now, took = number * 1e-3, []
    for _ in range(steps):
        call, prediction = a_call(number, rng)
        number += 1
        begin = time.perf_counter()
        scheduler.arrive(call, prediction, now)
        scheduler.finished(CallRecord(call.id, "m", 0.0, "cancelled"), now)
        took.append(time.perf_counter() - begin)
    return round(1e6 * float(np.median(took)), 1)


def run(quick: bool = False) -> dict[str, Any]:
    """{"16x16": {"p50_ms", "p99_ms", ...}, ..., "growth": {size: CPU p50 in ms}, "ordering_us": {waiting: us}}"""
    events = 300 if quick else 2000
    time_events(16, 16, 50)  # compile, warm up
    time_events(70, 16, 50)
    result: dict[str, Any] = {f"{r}x{w}": time_events(r, w, events) for r, w in SIZES}
    growth = {size: result["{}x{}".format(*size)] for size in SIZES}
    growth |= {size: time_events(*size, 300) for size in GROWTH}
    result["growth"] = {f"{r}x{w}": growth[r, w]["cpu_p50_ms"] for r, w in sorted(growth)}
    result["ordering_us"] = {str(n): time_ordering(n, 300 if quick else 2000) for n in (100, 1000, 10_000)}
    return result

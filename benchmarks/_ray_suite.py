"""Emulated engines inside Ray Serve and a seeded agent workload of prompts as in `_http_suite`, for ray.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from _http_suite import BATCH_SHARE, PREFILL_S, TOKEN_S, Outcome, Piece, Run, a_prompt

from swarmx import client
from swarmx.adapters.mock_replica import HiddenRule
from swarmx.sim.cluster import het_speeds
from swarmx.types import CallRecord

APP, ENGINE = "bench", "Engine"
SPEEDS = tuple(het_speeds())  # the mixed fleet of the evaluation: 4 each at 1, 0.6 and 0.35
SLOTS = 1
RULE = HiddenRule(mean_tokens=120, cv=2.0, rho2=0.7, seed=3)  # over these prompts: mean 98, CV 1.3, median 59
WIDTHS = (3, 8)  # pieces of work between a plan and a merge
CALLS_PER_RUN = 2 + sum(WIDTHS) / 2
SETTINGS = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",
}
ONGOING = 128  # max_ongoing_requests: far above the engines' slots, as people set it for LLMs


def capacity_per_s(scale: float) -> float:
    """Calls per second that all replicas can do together with full slots."""
    rng = np.random.default_rng(99)
    mean_tokens = float(np.mean([RULE.length(f"user: {a_prompt(rng)}") for _ in range(4000)]))
    token_s = scale * TOKEN_S * (1 + BATCH_SHARE * (SLOTS - 1))
    return sum(SLOTS * speed / (mean_tokens * token_s) for speed in SPEEDS)


def workload(seed: int, runs: int, rate_per_s: float) -> list[Run]:
    """Agents that plan, work on some pieces at once and merge. rate_per_s : of workflows, which come at random"""
    rng = np.random.default_rng(seed)
    made = []
    for i, at in enumerate(np.cumsum(rng.exponential(1 / rate_per_s, runs))):
        width = int(rng.integers(WIDTHS[0], WIDTHS[1] + 1))
        work = [Piece("work", a_prompt(rng), (0,)) for _ in range(width)]
        merge = Piece("merge", a_prompt(rng), tuple(range(1, width + 1)))
        made.append(Run(f"w{seed}-{i}", float(at), (Piece("plan", a_prompt(rng)), *work, merge)))
    return made


def training_records(count: int, seed: int) -> list[CallRecord]:
    """What an earlier log would hold: prompts of the same kind, none of those used later, with their true lengths."""
    rng, records = np.random.default_rng(seed), []
    for i in range(count):
        prompt = a_prompt(rng)
        record = CallRecord(
            f"past-{i}", ENGINE, float(i), "ok", workflow_id=f"past-{i}", type=str(rng.choice(["plan", "work"])),
            prompt=prompt, prompt_tokens=len(prompt) // 4, dispatched_s=float(i), finished_s=i + 1.0,
            output_tokens=RULE.length(f"user: {prompt}"),
        )  # fmt: skip
        records.append(record)
    return records


class Cluster:
    """A local Ray with one deployment, whose router can be changed while the replicas stay."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __enter__(self) -> Cluster:
        self._stdout = contextlib.redirect_stdout(sys.stderr)  # Ray complains there; standard output is for results
        self._stdout.__enter__()
        os.environ.update(SETTINGS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            from ray import serve
        self.ray, self.serve = ray, serve
        self.own = not ray.is_initialized()
        if self.own:
            ray.init(num_cpus=16, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False,
                     logging_level="ERROR", runtime_env={"env_vars": SETTINGS})  # fmt: skip
        serve.start(proxy_location="Disabled")
        return self

    def __exit__(self, *_: Any) -> None:
        from swarmx.adapters.ray_serve.owner import stop

        self.serve.delete(APP)
        stop(APP, ENGINE)
        if self.own:
            self.serve.shutdown()
            self.ray.shutdown()
        self._stdout.__exit__(None, None, None)

    def handle(self, config: Any, ongoing: int = ONGOING) -> Any:
        """A fresh handle, routed by that config. Handles made earlier keep their routers."""
        from ray.serve.handle import DeploymentHandle

        from swarmx.adapters.ray_serve.emulated import EmulatedEngine

        a, b = self.scale * TOKEN_S * (1 - BATCH_SHARE), self.scale * TOKEN_S * BATCH_SHARE
        rule = {"mean_tokens": RULE.mean_tokens, "cv": RULE.cv, "rho2": RULE.rho2, "seed": RULE.seed}
        engine = self.serve.deployment(EmulatedEngine).options(
            _internal=True, version=f"{self.scale}",  # same engines: replicas stay, and are told the new configuration
            name=ENGINE, num_replicas=len(SPEEDS), max_ongoing_requests=ongoing,
            request_router_config=config, ray_actor_options={"num_cpus": 0.1}, health_check_period_s=60,
        )  # fmt: skip
        app = engine.bind(SPEEDS, SLOTS, (a, b, 0.0, self.scale * PREFILL_S), rule)
        self.serve.run(app, name=APP, route_prefix=None)
        return DeploymentHandle(ENGINE, APP)  # Serve's own function gives the same handle again and again


async def drive(handle: Any, runs: Sequence[Run], warm: int) -> Outcome:
    """Make the workflows' calls at their times; the first `warm` workflows are not counted."""
    outcome, loop = Outcome(), asyncio.get_running_loop()
    begin, took = loop.time(), dict[str, float]()

    async def one(run: Run, counted: bool) -> None:
        await asyncio.sleep(max(0.0, begin + run.at_s - loop.time()))
        outcome.lateness.append(loop.time() - begin - run.at_s)
        with client.workflow(run.id):
            ends: list[asyncio.Task[None]] = []
            for piece in run.pieces:
                ends.append(asyncio.create_task(call(piece, [ends[i] for i in piece.after], counted)))
            await asyncio.gather(*ends)
        if counted:
            took[run.id] = loop.time() - begin - run.at_s

    async def call(piece: Piece, waits: list[asyncio.Task[None]], counted: bool) -> None:
        await asyncio.gather(*waits)
        started = loop.time()
        try:
            answer = await handle.remote(piece.prompt, swarmx_type=piece.type)
            good = answer["usage"]["completion_tokens"] == RULE.length(f"user: {piece.prompt}")
        except Exception:
            good = False
        outcome.lost += not good
        if counted:
            outcome.call_s.append(loop.time() - started)

    await asyncio.gather(*(one(run, i >= warm) for i, run in enumerate(runs)))
    outcome.run_s = [took[run.id] for run in runs[warm:]]  # in the workflows' order, so that routers compare by pairs
    return outcome


async def ready(handle: Any, late: bool, within_s: float = 60.0) -> None:
    """Until the handle's router has compiled, loaded and found the queue owner."""
    from swarmx.adapters.ray_serve.counters import router_of

    until = time.monotonic() + within_s
    while time.monotonic() < until:
        await handle.instant.remote("warm")
        router = router_of(handle)
        if getattr(router, "_desk", True) and (not late or router.counts.get("owner_grants")):
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the router did not become ready")


async def hand_overs(handle: Any, calls: int = 120) -> list[float]:
    """Milliseconds for which a slot stood empty between two calls, while others waited for one."""
    rng = np.random.default_rng(5)
    answers = await asyncio.gather(*(handle.remote(a_prompt(rng)) for _ in range(calls)))
    waited = answers[len(SPEEDS) : calls - 2 * len(SPEEDS)]  # neither those that found slots free nor the last ones
    return [1e3 * answer["idle_s"] for answer in waited if answer["idle_s"] is not None]


async def latencies(handles: dict[str, Any], pairs: int) -> dict[str, list[float]]:
    """Milliseconds of single calls, the handles in turn."""
    found: dict[str, list[float]] = {name: [] for name in handles}
    for i in range(pairs):
        for name, handle in handles.items():
            begin = time.perf_counter()
            await handle.instant.remote(f"Please write a short report on rivers and bridges, number {i}.")
            found[name].append(1e3 * (time.perf_counter() - begin))
    return found

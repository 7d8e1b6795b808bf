"""Chats with shared beginnings through Ray Serve LLM's own server and ingress code, under several request routers.

    swarmx bench ray_llm [--quick] [--json]

Three replicas of speeds 1, 1/2 and 1/4 with four slots each. Every prompt begins with one of 24 system prompts of about
a thousand tokens; a replica keeps as many of them as its KV cache has room for, about eight, and what it has not kept
it reads again, for as long as half an answer takes. Same prompts and arrival times for every router. The engine sleeps
by the simulator's model, and small classes stand in for the protocol models of vLLM: what is measured is routing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapters.ray_serve.settings import router_config

HERE = Path(__file__).resolve().parent
WORKERS = [str(HERE.parent / "tests" / "adapters" / "ray" / part) for part in (".", "llm_stub")]  # Ray's workers import
LOAD = 0.9  # of what the fleet could serve with full slots if it kept no prompt
PREFIXES, PREFIX_WORDS = 24, 700
WARM = 60  # first calls, which are not counted: caches fill and speeds are learned
RESAMPLES = 500
WORDS = ("plan", "code", "test", "merge", "cache", "queue", "graph", "token", "index", "shard", "parse", "stream")
REFERENCE = "serve power of two"


def routers() -> dict[str, Any]:
    from ray.serve.config import RequestRouterConfig
    from ray.serve.llm.request_router import PrefixCacheAffinityRouter

    found: dict[str, Any] = {REFERENCE: None}
    for name, kwargs in (("default", {}), ("threshold 4", {"imbalanced_threshold": 4})):
        prefix = {"request_router_class": PrefixCacheAffinityRouter, "request_router_kwargs": kwargs}
        found[f"prefix affinity, {name}"] = RequestRouterConfig(**prefix)
    for name in ("least_outstanding_per_speed", "push", "late"):
        found[f"swarmx {name}"] = router_config(name, config={"start_s": 60.0})
    return found


def prompts(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    words = np.array(WORDS)
    heads = [" ".join(draw.choice(words, PREFIX_WORDS)) for _ in range(PREFIXES)]
    return [f"{heads[draw.integers(PREFIXES)]} {' '.join(draw.choice(words, 8))}" for _ in range(count)]


def rate(texts: list[str]) -> float:
    """Calls a second at that load, nothing cached."""
    import llm_app

    c = llm_app.CONSTANTS
    tokens = np.mean([llm_app.RULE.length(text) for text in texts])
    seconds = tokens * (c.a + c.b * llm_app.SLOTS) + llm_app.SLOTS * c.p * len(texts[0]) / 4  # prefill stalls all slots
    return LOAD * llm_app.SLOTS * sum(llm_app.SPEEDS) / float(seconds)


async def drive(handle: Any, texts: list[str], per_s: float, seed: int) -> list[float]:
    """Seconds of each call, those of the warm-up left out; all routers see the same calls at the same times."""
    draw = np.random.default_rng(seed)

    async def one(text: str) -> float:
        began = time.monotonic()
        await handle.ask.remote(text)
        return time.monotonic() - began

    await asyncio.gather(*(one("warm up the engines") for _ in range(6)))
    await asyncio.sleep(3.0)  # statistics travel
    calls = []
    for text in texts:
        calls.append(asyncio.create_task(one(text)))
        await asyncio.sleep(draw.exponential(1 / per_s))
    return list(await asyncio.gather(*calls))[WARM:]


def row(took: list[float], reference: list[float] | None) -> dict[str, Any]:
    """Quantiles, and the P99 and the mean relative to the reference's with 95 % intervals over paired calls."""
    names = ("p50_s", "p95_s", "p99_s")
    found: dict[str, Any] = {
        n: round(float(v), 3) for n, v in zip(names, np.quantile(took, (0.5, 0.95, 0.99)), strict=True)
    }
    if reference is None:
        return found
    ours, theirs, draw = np.array(took), np.array(reference), np.random.default_rng(0)
    picks = draw.integers(0, ours.size, (RESAMPLES, ours.size))
    for name, measure in (("p99", lambda v: np.quantile(v, 0.99, axis=-1)), ("mean", lambda v: v.mean(axis=-1))):
        draws = measure(ours[picks]) / measure(theirs[picks])
        low, high = np.quantile(draws, (0.025, 0.975))
        ratio = float(measure(ours) / measure(theirs))
        found[f"{name}_ratio"] = [round(float(v), 3) for v in (ratio, low, high)]
    return found


def run(
    quick: bool = False, data: str | None = None, calls: int = 0, seed: int = 0, only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The figures of the module's docstring. data : unused, every benchmark has it; only : words of routers' names"""
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE] + WORKERS  # HERE holds a ray.py too
    with contextlib.redirect_stdout(sys.stderr):  # Ray complains there
        import llm_app
        import ray
        from ray import serve

        path = ":".join(WORKERS)
        ray.init(
            num_cpus=16, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}}
        )
        serve.start(proxy_location="Disabled")
        texts = prompts((calls or (160 if quick else 400)) + WARM, seed)
        per_s, rows, reference = rate(texts), {}, None
        for name, router in routers().items():
            if only and not any(word in name for word in only):
                continue
            handle = serve.run(llm_app.app(router, path), name="llm", route_prefix=None)
            took = asyncio.run(drive(handle, texts, per_s, seed))
            rows[name] = row(took, reference)
            reference = took if name == REFERENCE else reference
            serve.delete("llm")
            print(f"{name:40} {json.dumps(rows[name])}", file=sys.stderr, flush=True)
        serve.shutdown()
        ray.shutdown()
    return {"calls": len(texts) - WARM, "seed": seed, "per_s": per_s, "rows": rows}


if __name__ == "__main__":
    print(
        json.dumps(run("--quick" in sys.argv, only=tuple(a for a in sys.argv[1:] if not a.startswith("-"))), indent=2)
    )

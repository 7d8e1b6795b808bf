"""Chats through Ray Serve LLM's own server and ingress code, on an emulated mixed fleet, under several request routers.

    PYTHONPATH=tests/adapters/ray:tests/adapters/ray/llm_stub python benchmarks/ray_llm.py [--calls 200] [--only late]

Three replicas of speeds 1, 1/2 and 1/4 with four slots each; prompts begin with one of twelve long system prompts,
whose blocks a replica keeps for its next call. Same prompts and arrival times for every router. The engine sleeps by
the simulator's model, and the protocol models stand in for vLLM's: what is measured is routing, not an LLM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapters.ray_serve.settings import router_config

LOAD = 0.75  # of what the fleet can serve with full slots
PREFIXES, PREFIX_WORDS = 12, 400
WORDS = ("plan", "code", "test", "merge", "cache", "queue", "graph", "token", "index", "shard", "parse", "stream")


def routers() -> dict[str, Any]:
    from ray.serve.config import RequestRouterConfig
    from ray.serve.llm.request_router import PrefixCacheAffinityRouter

    prefix = {"request_router_class": PrefixCacheAffinityRouter, "request_router_kwargs": {"imbalanced_threshold": 4}}
    found: dict[str, Any] = {"power of two": None, "prefix affinity": RequestRouterConfig(**prefix)}
    for name in ("least_outstanding_per_speed", "push", "late"):
        found[f"swarmx {name}"] = router_config(name, config={"start_s": 60.0})
    return found


def prompts(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    words = np.array(WORDS)
    heads = [" ".join(draw.choice(words, PREFIX_WORDS)) for _ in range(PREFIXES)]
    return [f"{heads[draw.integers(PREFIXES)]} {' '.join(draw.choice(words, 8))}" for _ in range(count)]


def rate(texts: list[str]) -> float:
    """Calls a second at that load, uncached."""
    import llm_app

    c = llm_app.CONSTANTS
    tokens = np.mean([llm_app.RULE.length(text) for text in texts])
    seconds = tokens * (c.a + c.b * llm_app.SLOTS) + c.p * len(texts[0]) / 4
    return LOAD * llm_app.SLOTS * sum(llm_app.SPEEDS) / float(seconds)


async def drive(handle: Any, texts: list[str], per_s: float, seed: int) -> list[float]:
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
    return list(await asyncio.gather(*calls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="routers whose names hold one of these words, by commas")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]  # it holds a ray.py too
    import llm_app
    import ray
    from ray import serve

    path = ":".join(str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(":") if p)
    environment = {"env_vars": {"PYTHONPATH": path}}
    local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": 16, "include_dashboard": False}
    ray.init(log_to_driver=False, runtime_env=environment, **local)
    serve.start(proxy_location="Disabled")
    texts = prompts(asked.calls, asked.seed)
    per_s, rows = rate(texts), {}
    for name, router in routers().items():
        if asked.only and not any(word in name for word in asked.only.split(",")):
            continue
        handle = serve.run(llm_app.app(router, path), name="llm", route_prefix=None)
        took = asyncio.run(drive(handle, texts, per_s, asked.seed))
        rows[name] = dict(zip(("p50_s", "p95_s", "p99_s"), np.quantile(took, (0.5, 0.95, 0.99)).round(3), strict=True))
        serve.delete("llm")
        if not asked.json:
            print(f"{name:40}", *(f"{k} {v:.3f}" for k, v in rows[name].items()), flush=True)
    if asked.json:
        print(json.dumps({"calls": asked.calls, "per_s": per_s, "rows": rows}))


if __name__ == "__main__":
    main()

"""What a pick costs: CPU, latency that it adds, and what the picker takes at rest; for picker.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import time
from pathlib import Path
from typing import Any

import _http_suite as suite
import aiohttp
import numpy as np
from _picker_front import IDLE, Front, front, page, ready_engines

from swarmx.adapters.envoy.bootstrap import Answers, Balance

SEED = 11


async def _picks(pages: str) -> float:
    text = await page(f"{pages}/metrics")
    return next(float(row.split()[1]) for row in text.splitlines() if row.startswith("swarmx_picker_picks_total"))


async def saturate(at: Front, seconds: float, clients: int = 24) -> tuple[int, int]:
    """(answered with 200, failed) by clients that send one request after the other."""
    until, counts = time.monotonic() + seconds, [0, 0]

    async def client(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < until:
            counts[0 if await _send(http, at.url, next(_next_body)) is not None else 1] += 1

    async with _session() as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return counts[0], counts[1]


async def at_rate(at: Front, seconds: float, rate_per_s: float, seed: int) -> tuple[list[float], int]:
    """(latencies in s, failed) of Poisson arrivals."""
    rng, tasks = np.random.default_rng(seed), []
    due = np.cumsum(rng.exponential(1 / rate_per_s, int(seconds * rate_per_s)))
    bodies = _bodies(len(due), seed + 1)  # that this picker has never seen
    begin = time.monotonic()
    async with _session() as http:
        for at_s, body in zip(due, bodies, strict=True):
            await asyncio.sleep(max(0.0, begin + at_s - time.monotonic()))
            tasks.append(asyncio.create_task(_send(http, at.url, body)))
        took = await asyncio.gather(*tasks)
    return [t for t in took if t is not None], sum(t is None for t in took)


@functools.cache
def _bodies(count: int = 5000, part: int = 0) -> list[bytes]:
    """Requests of 2 kB with prompts that differ from their first words on, in each part others."""
    rng = np.random.default_rng([SEED, part])
    sentences = [suite.a_prompt(rng) for _ in range(1000)]
    texts = (" ".join((suite.a_prompt(rng), *rng.choice(sentences, 29))) for _ in range(count))
    return [json.dumps({"model": "mock", "max_tokens": 1, "messages": [{"role": "user", "content": t}]}).encode()
            for t in texts]  # fmt: skip


async def _send(http: aiohttp.ClientSession, url: str, body: bytes) -> float | None:
    began = time.perf_counter()
    try:
        async with http.post(
            f"{url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
        ) as a:
            await a.read()
            return time.perf_counter() - began if a.status == 200 else None
    except (aiohttp.ClientError, OSError):
        return None


_next_body = itertools.chain.from_iterable(_bodies() for _ in itertools.repeat(None))


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60))


async def cost(folder: Path, quick: bool, model: Path | None) -> dict[str, Any]:
    """Throughput and added latency over engines that answer at once."""
    blocks, seconds = (3, 4.0) if quick else (6, 10.0)
    arms: dict[str, tuple[Balance, str, Path | None, Answers, int, str]] = {
        "floor": ("round_robin", "", None, "watched", suite.SLOTS, ""),
        IDLE: ("picker", IDLE, None, "watched", suite.SLOTS, ""),
        "ours": ("picker", "push", None, "watched", suite.SLOTS, ""),
        "inline": ("picker", "push", None, "body", suite.SLOTS, ""),
    }
    if model is not None:
        for runs in ("thread", "process"):
            arms[f"predicting_{runs}"] = ("picker", "push", model, "watched", suite.SLOTS, runs)
    count = len(suite.SPEEDS)
    ports = suite.free_ports(count + 4 * len(arms))
    took: dict[str, list[float]] = {name: [] for name in arms}
    failed = 0
    async with contextlib.AsyncExitStack() as stack:
        group = stack.enter_context(suite.processes(folder))
        suite.start_mocks(group, ports[:count], 1.0, instant=True)
        await ready_engines(ports[:count])
        fronts = {
            name: await stack.enter_async_context(front(group, ports[:count], ports[at : at + 4], *arm))
            for at, (name, arm) in zip(range(count, len(ports), 4), arms.items(), strict=True)
        }
        ours = fronts["ours"]
        assert ours.picker_pid is not None
        await saturate(ours, 2.0)
        picks, cpu, wall = await _picks(ours.pages), suite.cpu_s(ours.picker_pid), time.monotonic()
        _, lost = await saturate(ours, seconds * 2)
        picks, cpu, wall = (
            await _picks(ours.pages) - picks, suite.cpu_s(ours.picker_pid) - cpu, time.monotonic() - wall,
        )  # fmt: skip
        floor_done, floor_lost = await saturate(fronts["floor"], seconds)
        failed += lost + floor_lost
        for block in range(blocks):
            for name, at in fronts.items():
                times, lost = await at_rate(at, seconds, 100.0, block)
                took[name] += times
                failed += lost
    at_q = {
        name: {f"p{round(q * 100)}": float(np.quantile(t, q)) * 1e3 for q in (0.5, 0.99)} for name, t in took.items()
    }
    added = {name: {q: round(ms[q] - at_q["floor"][q], 2) for q in ms} for name, ms in at_q.items() if name != "floor"}
    return {
        "picks_per_s": round(picks / cpu), "picks_per_wall_s": round(picks / wall),
        "floor_per_wall_s": round(floor_done / seconds), "failed": failed,
        "added_ms": added["ours"], "added_inline_ms": added["inline"], "added_idle_ms": added[IDLE],
        **{f"added_{name}_ms": ms for name, ms in added.items() if name.startswith("predicting")},
        "floor_ms": {q: round(ms, 2) for q, ms in at_q["floor"].items()}, "n": len(took["ours"]),
    }  # fmt: skip

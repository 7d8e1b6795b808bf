"""What the gateway costs, and what it wins: added latency, CPU per request, tail latency against other policies.

    swarmx bench gateway [--quick] --json

Latency is measured with one request at a time, direct and through the gateway in turn, on replicas that answer at once;
`added_ms` is the median of the paired differences, and the difference of the 99th percentiles. CPU is that of the
gateway's process at 200 requests a second. `features` repeats it with one thing more or less.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import peers
from _http_suite import cpu_s, free_ports, processes, start_mocks, start_swarmx, wait_ready

RATE_PER_S = 200
WARM = 100
BODY = {"model": "mock", "max_tokens": 16, "messages": [{"role": "user", "content": "Please answer. " + "word " * 100}]}


async def _one(http: aiohttp.ClientSession, url: str, stream: bool) -> float:
    """Milliseconds to the whole answer, or to the first event of a stream."""
    started = time.perf_counter()
    async with http.post(f"{url}/v1/chat/completions", json={**BODY, "stream": stream}) as answer:
        if stream:
            await answer.content.readany()
            first = 1e3 * (time.perf_counter() - started)
        raw = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{url}: {answer.status} {raw[:200]!r}")
    return first if stream else 1e3 * (time.perf_counter() - started)


async def added(direct: str, routed: str, n: int, stream: bool) -> dict[str, float]:
    """Added milliseconds, from n requests each way in turn."""
    async with aiohttp.ClientSession() as http:
        for _ in range(WARM):
            await _one(http, direct, stream)
            await _one(http, routed, stream)
        pairs = np.array([(await _one(http, direct, stream), await _one(http, routed, stream)) for _ in range(n)])
    p99 = np.quantile(pairs, 0.99, axis=0)
    return {
        "p50": round(float(np.median(pairs[:, 1] - pairs[:, 0])), 3),
        "p99": round(float(p99[1] - p99[0]), 3),
        "direct_p50": round(float(np.median(pairs[:, 0])), 3),
    }


async def cpu_ms(routed: str, pid: int, seconds: float) -> float:
    """CPU milliseconds of the process per request, at RATE_PER_S."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for _ in range(WARM):
            await _one(http, routed, False)
        before, begin, sent = cpu_s(pid), time.perf_counter(), []
        for i in range(int(RATE_PER_S * seconds)):
            sent.append(asyncio.create_task(_one(http, routed, False)))
            await asyncio.sleep(max(0.0, begin + (i + 1) / RATE_PER_S - time.perf_counter()))
        await asyncio.gather(*sent)
        return round(1e3 * (cpu_s(pid) - before) / len(sent), 3)


async def cost(name: str, n: int, seconds: float, model: Path | None = None, **blocks: Any) -> dict[str, Any]:
    """One configuration: added latency plain and streamed, CPU per request."""
    ports = free_ports(6)
    with tempfile.TemporaryDirectory(prefix="swarmx-cost-") as folder, processes(Path(folder)) as group:
        start_mocks(group, ports[:2], 1.0, instant=True)
        await wait_ready(f"http://127.0.0.1:{ports[1]}")
        if blocks.get("log") is True:
            blocks["log"] = {"directory": str(Path(folder) / "log")}
        if model is not None:
            blocks["predictor"] = {"kind": "local", "path": str(model), "budget_s": 0.05}
        preset = blocks.pop("preset", "late")
        child = start_swarmx(group, ports[3], ports[:2], preset, **blocks)
        direct, routed = f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[3]}"
        await wait_ready(routed, child)
        row = {
            "added_ms": await added(direct, routed, n, stream=False),
            "added_first_token_ms": await added(direct, routed, n, stream=True),
            "cpu_ms_per_request": await cpu_ms(routed, child.pid, seconds),
        }
        print(f"{name}: {json.dumps(row)}", file=sys.stderr, flush=True)
        return row


def run(quick: bool = False, data: str | None = None) -> dict[str, Any]:
    """The figures of the module's docstring. data : unused, every benchmark has it"""
    n, seconds = (300, 3.0) if quick else (1500, 10.0)
    features = {
        "late": asyncio.run(cost("late", n, seconds)),
        "LED": asyncio.run(cost("LED", n, seconds, preset="least_outstanding_per_speed")),
        "late, records on disk": asyncio.run(cost("records", n, seconds, log=True)),
    }
    if not quick:
        with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
            model = peers.train(Path(folder))
            features["late, prediction"] = asyncio.run(cost("prediction", n, seconds, model))
    compared = peers.run(quick)
    ratios = compared["ratios"]
    p99 = {f"late_vs_{k.split(' / ')[1].replace(' ', '_')}": v["workflow_p99"] for k, v in ratios.items()}
    plain = features["late"]
    return {
        "added_ms": {q: plain["added_ms"][q] for q in ("p50", "p99")},
        "added_first_token_ms": {q: plain["added_first_token_ms"][q] for q in ("p50", "p99")},
        "cpu_ms_per_request": plain["cpu_ms_per_request"],
        "p99_ratio": {"late_vs_led": p99.pop("late_vs_swarmx_LED", None), **p99},
        "calls_lost": sum(row["lost"] for row in compared["rows"].values()),
        "features": features,
        "policies": compared,
    }


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))

"""What the gateway costs, and what it wins: added latency, CPU per request, tail latency against other policies.

    swarmx bench gateway [--quick] --json        python benchmarks/gateway.py --features

Latency is measured with one request at a time, direct and through the gateway in turn, on replicas that answer at once;
`added_ms` is the median of the paired differences, and the difference of the 99th percentiles. CPU is user and system
time of the gateway's process at 200 requests a second, measured in turns of one second for all configurations, so that
other work on the machine troubles all alike; the row is the median of the turns. `features` has one thing more or less
in each row, and a bare aiohttp proxy as the floor. `--quick` leaves the other features and the other routers out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any

import aiohttp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import peers
from _http_suite import Processes, cpu_s, free_ports, processes, start_mocks, start_swarmx, wait_ready

RATE_PER_S = 200
WARM = 100
TURN_S = 1.0
MODEL = Path(__file__).parents[1] / "models" / "default"
NUMBERS = count()  # no prompt comes twice, so that a predictor has to read each
FLOOR = """
import sys, asyncio, aiohttp, uvloop
from aiohttp import web
async def main(port, upstream):
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
    async def forward(request):
        raw, headers = await request.read(), {"Content-Type": "application/json"}
        async with session.post(upstream + request.path, data=raw, headers=headers) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()
uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
"""


@dataclass(frozen=True)
class Setting:
    """One configuration. preset : "" for the bare proxy; stream : its CPU is that of streamed calls"""

    preset: str = "late"
    blocks: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False


def settings(folder: Path) -> dict[str, Setting]:
    """Every row of the full run, by name; each differs from "late" in what it says."""
    return {
        "late": Setting(),
        "late, streamed": Setting(stream=True),
        "LED": Setting("least_outstanding_per_speed"),
        "late, no receipts": Setting(blocks={"log": {"receipts": 0}}),
        "late, records on disk": Setting(blocks={"log": {"directory": str(folder / "log")}}),
        "late, tracing to the console": Setting(server={"tracing": {"kind": "console"}}),
        "late, prediction": Setting(blocks={"predictor": {"kind": "local", "path": str(MODEL), "budget_s": 0.05}}),
        "bare aiohttp proxy": Setting(""),
    }


async def _one(http: aiohttp.ClientSession, url: str, stream: bool) -> float:
    """Milliseconds to the whole answer, or to the first event of a stream."""
    prompt = f"Please answer number {next(NUMBERS)}. " + "word " * 100
    body = {"model": "mock", "max_tokens": 16, "stream": stream, "messages": [{"role": "user", "content": prompt}]}
    started = time.perf_counter()
    async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
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


async def turn_ms(http: aiohttp.ClientSession, routed: str, pid: int, stream: bool) -> float:
    """CPU milliseconds of the process per request, over one turn at RATE_PER_S."""
    before, begin, sent = cpu_s(pid), time.perf_counter(), []
    for i in range(round(RATE_PER_S * TURN_S)):
        sent.append(asyncio.create_task(_one(http, routed, stream)))
        await asyncio.sleep(max(0.0, begin + (i + 1) / RATE_PER_S - time.perf_counter()))
    await asyncio.gather(*sent)
    return 1e3 * (cpu_s(pid) - before) / len(sent)


async def cpu_ms(running: Mapping[str, tuple[str, int, bool]], turns: int) -> dict[str, float]:
    """CPU milliseconds per request of each. running : name -> (url, process, whether calls are streamed)"""
    found: dict[str, list[float]] = {name: [] for name in running}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for turn in range(turns + 1):
            for name, (url, pid, stream) in running.items():
                value = await turn_ms(http, url, pid, stream)
                if turn:  # the first warms up
                    found[name].append(value)
    return {name: round(float(np.median(values)), 3) for name, values in found.items()}


def _start(group: Processes, port: int, replicas: list[int], name: str, setting: Setting) -> Popen[bytes]:
    if not setting.preset:
        return group.start([sys.executable, "-c", FLOOR, str(port), f"http://127.0.0.1:{replicas[0]}"], "floor")
    own = Processes(group.folder / name.replace(" ", "_"))
    own.folder.mkdir()
    child = start_swarmx(own, port, replicas, setting.preset, server=setting.server, **setting.blocks)
    group.started.append(child)
    return child


async def costs(n: int, turns: int, names: set[str] | None = None) -> dict[str, dict[str, Any]]:
    """Rows of `settings`: added latency plain and to the first event, CPU per request."""
    with tempfile.TemporaryDirectory(prefix="swarmx-cost-") as name, processes(Path(name)) as group:
        folder = Path(name)
        wanted = {k: s for k, s in settings(folder).items() if names is None or k in names}
        ports = free_ports(3 + 2 * len(wanted))
        start_mocks(group, ports[:2], 1.0, instant=True)
        direct = f"http://127.0.0.1:{ports[0]}"
        await wait_ready(f"http://127.0.0.1:{ports[1]}")
        running = {}
        for place, (key, setting) in enumerate(wanted.items()):
            child = _start(group, ports[3 + 2 * place], ports[:2], key, setting)
            url = f"http://127.0.0.1:{ports[3 + 2 * place]}"
            await wait_ready(url, child)
            running[key] = (url, child.pid, setting.stream)
        cpu = await cpu_ms(running, turns)
        rows: dict[str, dict[str, Any]] = {}
        for key, (url, _, stream) in running.items():
            rows[key] = {"cpu_ms_per_request": cpu[key]}
            if not stream:
                rows[key]["added_ms"] = await added(direct, url, n, stream=False)
                rows[key]["added_first_token_ms"] = await added(direct, url, n, stream=True)
            print(f"{key}: {json.dumps(rows[key])}", file=sys.stderr, flush=True)
        return rows


def run(quick: bool = False, data: str | None = None) -> dict[str, Any]:
    """The figures of the module's docstring. data : unused, every benchmark has it"""
    if quick:
        features = asyncio.run(costs(300, 4, {"late", "bare aiohttp proxy"}))
        compared = peers.run(True, runs=40, scale=1.0, only=("swarmx late", "swarmx LED"))
    else:
        features = asyncio.run(costs(1500, 10))
        compared = peers.run()
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
    found = asyncio.run(costs(400, 5)) if "--features" in sys.argv else run("--quick" in sys.argv)
    print(json.dumps(found, indent=2))

"""The endpoint picker behind a real Envoy: cost per pick, added latency, and what its choices are worth.

    python benchmarks/picker.py [--quick] [--json] [--preset late,push] [--trained]

Everything runs on this machine: emulated engines in one process, Envoy with one thread, the picker in one process, the
client here. The floor, Envoy's own round robin over the same engines, is measured in the same run, in blocks that
alternate with the picker's. `picks_per_s` is picks per CPU second of the picker's process: what saturates one core;
`picks_per_wall_s` is what came through here with everything else on the same cores. The third part sends one seeded
agent workload through Envoy's round robin, its least_request and the picker over a heterogeneous pool: without a
predictor, and with `--trained` also with one that has learned from earlier prompts of the same kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import _http_suite as suite

from swarmx.adapters.envoy.bootstrap import Balance, Bootstrap, bootstrap
from swarmx.presets import PRESETS

PICKER = "import typer; from swarmx.commands.kubernetes import endpoint_picker; typer.run(endpoint_picker)"
LOAD, SCALE, SEED = 0.75, 2.0, 11
STALLED_S, ATTEMPTS = 0.25, 3  # an arm in which the client itself sent late is measured again
TRAINED = "_trained"  # ends the name of an arm with a predictor
BODY = json.dumps({"model": "mock", "max_tokens": 1, "messages": [{"role": "user", "content": "x" * 2000}]}).encode()


@dataclass(frozen=True)
class Front:
    """A running Envoy, and the picker behind it where there is one."""

    url: str
    picker_pid: int | None
    pages: str


@contextlib.asynccontextmanager
async def front(
    group: suite.Processes,
    replicas: Sequence[int],
    ports: Sequence[int],
    balance: Balance,
    preset: str = "late",
    model: Path | None = None,
) -> AsyncIterator[Front]:
    """Start Envoy (and a picker) over engines that run already; all end with the block."""
    listen, admin, grpc, pages = ports
    started = len(group.started)
    picker = None
    if balance == "picker":
        rows = [
            {"url": f"http://127.0.0.1:{p}", "slots": suite.SLOTS, "device": f"x{v}"}
            for p, v in zip(replicas, suite.SPEEDS, strict=False)
        ]
        config = {"model": "mock", "replicas": rows, "listen": f"127.0.0.1:{grpc}", "notice_s": 0, "drain_s": 0.5,
                  "metrics_listen": f"127.0.0.1:{pages}", "scheduler": {"preset": preset}}  # fmt: skip
        if model is not None:
            config["predictor"] = {"kind": "local", "path": str(model), "budget_s": 0.05}
        path = group.folder / f"picker-{grpc}.yaml"
        path.write_text(json.dumps(config))
        argv = [sys.executable, "-c", PICKER, str(path), "--log-level", "warning"]
        picker = group.start(argv, f"picker-{grpc}")
        await _page(f"http://127.0.0.1:{pages}/healthz")
    options = Bootstrap(
        f"127.0.0.1:{listen}", (f"127.0.0.1:{grpc}",), tuple(f"127.0.0.1:{p}" for p in replicas),
        admin=f"127.0.0.1:{admin}", balance=balance, message_timeout_s=1.0,
    )  # fmt: skip
    path = group.folder / f"envoy-{listen}.json"
    path.write_text(json.dumps(bootstrap(options)))
    envoy = Path(sys.executable).parent / "envoy"
    group.start([str(envoy), "-c", str(path), "--concurrency", "1", "--log-level", "error", "--base-id", str(listen)],
                f"envoy-{listen}")  # fmt: skip
    await _page(f"http://127.0.0.1:{admin}/ready")
    url = f"http://127.0.0.1:{listen}"
    await suite.wait_ready(url)
    try:
        yield Front(url, None if picker is None else picker.pid, f"http://127.0.0.1:{pages}")
    finally:
        for child in group.started[started:]:
            child.terminate()
            await asyncio.to_thread(child.wait)


async def _engines(replicas: Sequence[int]) -> None:
    """Until every engine answers."""
    await asyncio.gather(*(suite.wait_ready(f"http://127.0.0.1:{port}") for port in replicas))


async def _page(url: str) -> str:
    """The page once it is served with 200."""
    until = time.monotonic() + suite.READY_S
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.get(url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                    if answer.status == 200:
                        return await answer.text()
            await asyncio.sleep(0.1)
    raise RuntimeError(f"{url} did not answer")


async def _picks(pages: str) -> float:
    text = await _page(f"{pages}/metrics")
    return next(float(row.split()[1]) for row in text.splitlines() if row.startswith("swarmx_picker_picks_total"))


# ---- cost ----


async def saturate(at: Front, seconds: float, clients: int = 24) -> tuple[int, int]:
    """(answered with 200, failed) by clients that send one request after the other."""
    until, counts = time.monotonic() + seconds, [0, 0]

    async def client(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < until:
            counts[0 if await _send(http, at.url) is not None else 1] += 1

    async with _session() as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return counts[0], counts[1]


async def at_rate(at: Front, seconds: float, rate_per_s: float, seed: int) -> tuple[list[float], int]:
    """(latencies in s, failed) of Poisson arrivals."""
    rng, begin, tasks = np.random.default_rng(seed), time.monotonic(), []
    due = np.cumsum(rng.exponential(1 / rate_per_s, int(seconds * rate_per_s)))
    async with _session() as http:
        for at_s in due:
            await asyncio.sleep(max(0.0, begin + at_s - time.monotonic()))
            tasks.append(asyncio.create_task(_send(http, at.url)))
        took = await asyncio.gather(*tasks)
    return [t for t in took if t is not None], sum(t is None for t in took)


async def _send(http: aiohttp.ClientSession, url: str) -> float | None:
    began = time.perf_counter()
    try:
        async with http.post(
            f"{url}/v1/chat/completions", data=BODY, headers={"content-type": "application/json"}
        ) as a:
            await a.read()
            return time.perf_counter() - began if a.status == 200 else None
    except (aiohttp.ClientError, OSError):
        return None


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60))


async def cost(folder: Path, quick: bool) -> dict[str, Any]:
    """Throughput and added latency over engines that answer at once."""
    blocks, seconds = (3, 4.0) if quick else (6, 10.0)
    ports = suite.free_ports(len(suite.SPEEDS) + 8)
    replicas, near, far = ports[:-8], ports[-8:-4], ports[-4:]
    plain: list[float] = []
    picked: list[float] = []
    failed = 0
    with suite.processes(folder) as group:
        suite.start_mocks(group, replicas, 1.0, instant=True)
        await _engines(replicas)
        async with (
            front(group, replicas, near, "round_robin") as floor,
            front(group, replicas, far, "picker", "push") as ours,
        ):
            assert ours.picker_pid is not None
            await saturate(ours, 2.0)
            picks, cpu, wall = await _picks(ours.pages), suite.cpu_s(ours.picker_pid), time.monotonic()
            _, lost = await saturate(ours, seconds * 2)
            picks, cpu, wall = (
                await _picks(ours.pages) - picks, suite.cpu_s(ours.picker_pid) - cpu, time.monotonic() - wall,
            )  # fmt: skip
            floor_done, floor_lost = await saturate(floor, seconds)
            failed += lost + floor_lost
            for block in range(blocks):
                for at, into in ((floor, plain), (ours, picked)):
                    took, lost = await at_rate(at, seconds, 100.0, block)
                    into += took
                    failed += lost
    quantiles = {q: (float(np.quantile(plain, q)), float(np.quantile(picked, q))) for q in (0.5, 0.99)}
    return {
        "picks_per_s": round(picks / cpu), "picks_per_wall_s": round(picks / wall),
        "floor_per_wall_s": round(floor_done / seconds), "failed": failed,
        "added_ms": {f"p{round(q * 100)}": round((b - a) * 1e3, 2) for q, (a, b) in quantiles.items()},
        "floor_ms": {f"p{round(q * 100)}": round(a * 1e3, 2) for q, (a, _) in quantiles.items()},
        "n": len(picked),
    }  # fmt: skip


# ---- worth ----


def train(folder: Path) -> Path:
    """A predictor that has learned from earlier prompts of the same kind."""
    from swarmx.predict.train import train as fit

    out = folder / "model"
    fit(suite.training_records(3000, seed=SEED + 1), out)
    return out


async def worth(folder: Path, quick: bool, presets: Sequence[str], model: Path | None) -> dict[str, dict[str, Any]]:
    """One seeded agent workload over a heterogeneous pool, router by router; engines start anew for each."""
    rate = LOAD * suite.capacity_per_s(SCALE) / 4.5  # calls per workflow on average
    runs = suite.workload(SEED, 320 if quick else 1200, rate)
    warm = len(runs) // 5
    rows: dict[str, dict[str, Any]] = {}
    arms: list[tuple[str, Balance, str]] = [
        ("envoy_round_robin", "round_robin", ""),
        ("envoy_least_request", "least_request", ""),
        *((name, "picker", name) for name in presets),
    ]
    if model is not None:
        arms.append((presets[0] + TRAINED, "picker", presets[0]))
    for name, balance, preset in arms:
        for attempt in range(1, ATTEMPTS + 1):
            ports = suite.free_ports(len(suite.SPEEDS) + 4)
            replicas = ports[:-4]
            with suite.processes(folder) as group:
                suite.start_mocks(group, replicas, SCALE)
                await _engines(replicas)
                used = model if name.endswith(TRAINED) else None
                async with front(group, replicas, ports[-4:], balance, preset, used) as at:
                    rows[name] = {**(await suite.drive(at.url, runs, warm)).row(), "attempt": attempt}
            if rows[name]["client_late_p99_s"] <= STALLED_S:
                break
    return rows


def run(quick: bool = False, presets: Sequence[str] = ("late",), trained: bool = False) -> dict[str, Any]:
    """Everything, as `swarmx bench picker` prints it."""
    if "llmd_predicted" in PRESETS and "llmd_predicted" not in presets:
        presets = (*presets, "llmd_predicted")

    async def all_of_it(folder: Path) -> dict[str, Any]:
        spent = await cost(folder, quick)
        rows = await worth(folder, quick, presets, train(folder) if trained else None)
        p99 = {name: row["workflow_p99_s"] for name, row in rows.items()}
        ours = [name for name in (presets[0], presets[0] + TRAINED) if name in rows]
        others = [name for name in rows if name not in ours]
        ratio = {f"{mine}_vs_{name}": round(p99[mine] / p99[name], 3) for mine in ours for name in others}
        lost = sum(row["lost"] for row in rows.values())
        meta = {"load": LOAD, "speeds": suite.SPEEDS, "slots": suite.SLOTS, "seed": SEED}
        failed = spent["failed"] + lost
        return {**spent, "failed": failed, "p99_ratio": ratio, "workload": rows, "meta": meta}

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(all_of_it(Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter blocks, 320 workflows")
    parser.add_argument("--json", action="store_true", help="print JSON on one line")
    parser.add_argument("--preset", default="late", help="presets of the picker, the first one is compared")
    parser.add_argument("--trained", action="store_true", help="add an arm with a trained predictor")
    arguments = parser.parse_args()
    result = run(arguments.quick, tuple(arguments.preset.split(",")), arguments.trained)
    print(json.dumps(result, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()

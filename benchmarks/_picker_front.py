"""Envoy, and a picker behind it, over emulated engines, for picker.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import _http_suite as suite
import aiohttp

from swarmx.adapters.envoy.bootstrap import Answers, Balance, Bootstrap, bootstrap

PICKER = "import typer; from swarmx.commands.kubernetes import endpoint_picker; typer.run(endpoint_picker)"
IDLE = "idle"


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
    answers: Answers = "watched",
    slots: int = suite.SLOTS,
    runs: str = "thread",
) -> AsyncIterator[Front]:
    """Start Envoy (and a picker) over engines that run already; all end with the block. preset IDLE thinks nothing;
    runs : the predictor, in a "thread" or in a "process" of its own
    """
    listen, admin, grpc, pages = ports
    started = len(group.started)
    picker = None
    if preset == IDLE:
        idle = Path(__file__).parent / "_idle_picker.py"
        picker = group.start([sys.executable, str(idle), str(grpc), f"127.0.0.1:{replicas[0]}"], IDLE)
    elif balance == "picker":
        rows = [
            {"url": f"http://127.0.0.1:{p}", "slots": slots, "device": f"x{v}"}
            for p, v in zip(replicas, suite.SPEEDS, strict=False)
        ]
        config = {"model": "mock", "replicas": rows, "listen": f"127.0.0.1:{grpc}", "notice_s": 0, "drain_s": 0.5,
                  "metrics_listen": f"127.0.0.1:{pages}", "scheduler": {"preset": preset},
                  "proxy": {"answers": answers}}  # fmt: skip
        if model is not None:
            config["predictor"] = {"kind": "local", "path": str(model), "budget_s": 0.05, "runs": runs}
        path = group.folder / f"picker-{grpc}.yaml"
        path.write_text(json.dumps(config))
        argv = [sys.executable, "-c", PICKER, str(path), "--log-level", "warning"]
        picker = group.start(argv, f"picker-{grpc}")
        await page(f"http://127.0.0.1:{pages}/healthz")
    options = Bootstrap(
        f"127.0.0.1:{listen}", (f"127.0.0.1:{grpc}",), tuple(f"127.0.0.1:{p}" for p in replicas),
        admin=f"127.0.0.1:{admin}", balance=balance, message_timeout_s=1.0, answers=answers,
    )  # fmt: skip
    path = group.folder / f"envoy-{listen}.json"
    path.write_text(json.dumps(bootstrap(options)))
    envoy = Path(sys.executable).parent / "envoy"
    group.start([str(envoy), "-c", str(path), "--concurrency", "1", "--log-level", "error", "--base-id", str(listen)],
                f"envoy-{listen}")  # fmt: skip
    await page(f"http://127.0.0.1:{admin}/ready")
    url = f"http://127.0.0.1:{listen}"
    await suite.wait_ready(url)
    if picker is not None:
        await _asked(f"http://127.0.0.1:{admin}", url)
    try:
        yield Front(url, None if picker is None else picker.pid, f"http://127.0.0.1:{pages}")
    finally:
        for child in group.started[started:]:
            child.terminate()
            await asyncio.to_thread(child.wait)


async def ready_engines(replicas: Sequence[int]) -> None:
    """Until every engine answers."""
    await asyncio.gather(*(suite.wait_ready(f"http://127.0.0.1:{port}") for port in replicas))


async def page(url: str) -> str:
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


async def _asked(admin: str, url: str) -> None:
    """Until Envoy asks the picker: before that, FailOpen lets requests pass."""
    while "ext_proc.streams_started: 0" in await page(f"{admin}/stats?filter=ext_proc.streams_started"):
        await asyncio.sleep(0.2)
        await suite.wait_ready(url)

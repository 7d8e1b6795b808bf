"""What a picker takes while nobody asks it: it reads its endpoints' metrics pages; for picker.py.

python benchmarks/_picker_rest.py PORT ENDPOINTS   serves the pages, one endpoint an address
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import _http_suite as suite
from _picker_front import PICKER, page

SETTLED_S, MEASURED_S = 3.0, 15.0
PAGE = "".join(
    [f'vllm:part_{i}_bucket{{le="{j}"}} {i * j}\n' for i in range(30) for j in range(20)]
    + ['vllm:num_requests_running{engine="0"} 0\n', 'vllm:num_requests_waiting{engine="0"} 0\n']
)  # 19 kB, as vLLM's page with its histograms


async def at_rest(folder: Path, endpoints: int) -> float:
    """The share of a core that a picker of so many endpoints uses, settings as they are by default."""
    port, listen, pages = suite.free_ports(3)
    replicas = [{"url": f"http://{address}:{port}"} for address in _addresses(endpoints)]
    config = {"model": "m", "replicas": replicas, "listen": f"127.0.0.1:{listen}", "notice_s": 0, "drain_s": 0.5,
              "metrics_listen": f"127.0.0.1:{pages}"}  # fmt: skip
    path = folder / f"rest-{listen}.yaml"
    path.write_text(json.dumps(config))
    with suite.processes(folder) as group:
        group.start([sys.executable, __file__, str(port), str(endpoints)], "pages")
        await page(f"{replicas[-1]['url']}/metrics")
        picker = group.start([sys.executable, "-c", PICKER, str(path), "--log-level", "warning"], "resting")
        await page(f"http://127.0.0.1:{pages}/healthz")
        await asyncio.sleep(SETTLED_S)
        before = suite.cpu_s(picker.pid)
        await asyncio.sleep(MEASURED_S)
        used = suite.cpu_s(picker.pid) - before
        failed = [row for row in (await page(f"http://127.0.0.1:{pages}/metrics")).splitlines()
                  if row.startswith("swarmx_picker_scrape_failures_total{")]  # fmt: skip
        assert not failed, failed
    return used / MEASURED_S


def _addresses(endpoints: int) -> list[str]:
    return [f"127.0.{i // 250}.{i % 250 + 1}" for i in range(endpoints)]


def _serve(port: int, endpoints: int) -> None:
    from aiohttp import web

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    web.run_app(app, host=_addresses(endpoints), port=port, print=None, access_log=None)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))

"""`swarmx serve-scaler` against a server that answers as Ray 2.60's dashboard did; the samples are recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from swarmx.adapters.live_work import LiveDemand
from swarmx.adapters.ray_serve.external import ServeScaler
from swarmx.adapters.ray_serve.external_settings import ServeScalerSettings, read_serve_scaler_settings
from swarmx.adapters.ray_serve.metrics_page import read_counts
from swarmx.adapters.ray_serve.rest import find_token
from swarmx.adapters.ray_serve.totals import Totals
from swarmx.errors import BadInput
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.types import Call, CallRecord

RECORDED = Path(__file__).parent / "recorded"
TOKEN = "abc123"


class Dashboard:
    """The recorded application, whose counters a test moves on; asks for the token as Ray does."""

    def __init__(self) -> None:
        self.page = json.loads((RECORDED / "applications.json").read_text())
        self.metrics = (RECORDED / "metrics.txt").read_text()
        self.scaled: list[int] = []
        self.is_up = True
        self.state: dict[str, Any] = {}  # what a gateway in front publishes

    @property
    def deployment(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page["applications"]["outside"]["deployments"]["LLM"]
        return found

    def load(self, arrived: int, ended: int, running: int, queued: int) -> None:
        """Serve's counts of one handle and of the one replica that runs."""
        replica, labels = self.deployment["replicas"][0]["replica_id"], 'application="outside",deployment="LLM"'
        self.metrics = "\n".join(
            (
                f'ray_serve_num_router_requests_total{{{labels},handle="h"}} {arrived}.0',
                f'ray_serve_deployment_request_counter_total{{{labels},replica="{replica}",route=""}} {ended}.0',
                f'ray_serve_replica_processing_queries{{{labels},replica="{replica}"}} {running}.0',
                f'ray_serve_deployment_queued_queries{{{labels},handle="h"}} {queued}.0',
            )
        )

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/metrics":
            return web.Response(text=self.metrics) if self.is_up else web.Response(status=503)
        if request.path == "/state/LLM":
            return web.json_response(self.state)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        if request.path == "/api/prometheus/sd":
            return web.json_response([{"labels": {"job": "ray"}, "targets": [f"127.0.0.1:{self.port}"]}])
        if request.method == "POST":
            assert request.path == "/api/v1/applications/outside/deployments/LLM/scale"
            self.scaled.append((await request.json())["target_num_replicas"])
            self.deployment["target_num_replicas"] = self.scaled[-1]
            return web.json_response({"message": "Scaling request received."})
        return web.json_response(self.page)

    @asynccontextmanager
    async def served(self, token: str = TOKEN, **more: Any) -> AsyncIterator[ServeScaler]:
        import httpx

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        llm = {"minimum": 1, "maximum": 6, "slots": 4, "cold_s": 10}
        data = {"address": f"http://127.0.0.1:{self.port}", "applications": {"outside": {"deployments": {"LLM": llm}}}}
        async with httpx.AsyncClient(trust_env=False) as client:
            scaler = ServeScaler(ServeScalerSettings.model_validate(data | more), client)
            scaler.api.token_file = self.token(token)
            yield scaler
        await runner.cleanup()

    def token(self, text: str) -> Path:
        path = self.place / f"token-{text}"
        path.write_text(text + "\n")
        return path

    place: Path
    port: int = 0


@pytest.fixture
def dashboard(tmp_path: Path) -> Dashboard:
    found = Dashboard()
    found.place = tmp_path
    return found


def test_the_recorded_page_is_read_and_nothing_else_on_it() -> None:
    counts = read_counts([(RECORDED / "metrics.txt").read_text()])
    outside = counts["outside", "LLM"]
    assert sum(outside.arrived.values()) == sum(outside.ended.values()) == 143
    assert len(outside.running) == 3 and sum(outside.running.values()) == sum(outside.queued.values()) == 0
    assert counts["scale", "LLM"].ended.keys() != outside.ended.keys()
    assert read_counts(["ray_serve_deployment_queued_queries{application=", "", "garbage", "ray_serve_x{} nan"]) == {}


def test_load_brings_replicas_and_its_end_takes_them_away(dashboard: Dashboard) -> None:
    async def run() -> None:
        async with dashboard.served() as scaler:
            await scaler.check()
            now, arrived, ended = 1000.0, 0, 0
            for _ in range(30):  # 4 calls a second come, 2 a second are served, 4 run
                now, arrived, ended = now + 2, arrived + 8, ended + 4
                dashboard.load(arrived, ended, 4, arrived - ended - 4)
                await scaler.look(now)
            assert dashboard.scaled == sorted(dashboard.scaled) and dashboard.scaled[-1] == 6
            assert scaler.state()["outside"]["LLM"]["why"].startswith("demand from counts")
            for _ in range(100):
                now += 2
                dashboard.load(arrived, arrived, 0, 0)
                await scaler.look(now)
            assert dashboard.deployment["target_num_replicas"] == 1
            before = list(dashboard.scaled)
            await scaler.look(now + 2)
            assert dashboard.scaled == before, "nothing is said twice"

    asyncio.run(run())


def test_calls_that_live_workflows_will_cause_order_replicas_before_they_come(dashboard: Dashboard) -> None:
    log = []
    for i in range(30):  # plans of 10 s at another model, then eight calls of 30 s here
        plan = CallRecord(f"{i}/p", "plan", 100.0 * i, "ok", f"w{i}", type="plan", dispatched_s=100.0 * i,
                          finished_s=100.0 * i + 10)  # fmt: skip
        log.append(plan)
        for k in range(8):
            at = 100.0 * i + 10
            log.append(replace(plan, call_id=f"{i}/{k}", model="LLM", type="write", parent_id=f"{i}/p", arrival_s=at,
                               dispatched_s=at, finished_s=at + 30))  # fmt: skip
    book = LiveDemand(LiveWork(fit_profiles(log, windows_to(15.0))))
    for i in range(2):
        book.arrived(Call(f"run{i}", "plan", 0.0, type="plan", workflow_id=f"run{i}"), None, 0.0)
        book.started(f"run{i}", 0.0)

    async def run() -> None:
        async with dashboard.served() as scaler:
            dashboard.load(0, 0, 0, 0)
            await scaler.look(1000.0)
            assert dashboard.scaled == []
            url = f"http://127.0.0.1:{dashboard.port}/state/LLM"
            scaler.settings = scaler.settings.model_copy(update={"demand": (url,)})
            dashboard.state = {"demand": book.page(0.0)}
            await scaler.look(1005.0)
            assert dashboard.scaled[-1] >= 4  # sixteen calls on slots of four
            dashboard.state = {"demand": {"book": "?"}}
            await scaler.look(1010.0)
            assert len(dashboard.scaled) == 1  # what cannot be read is no reason to lower

    asyncio.run(run())


def test_what_cannot_be_seen_changes_nothing(dashboard: Dashboard) -> None:
    async def run() -> None:
        async with dashboard.served() as scaler:
            dashboard.load(100, 0, 4, 96)
            dashboard.is_up = False
            await scaler.look(1000.0)
            assert not scaler.looked and dashboard.scaled == []
            dashboard.is_up = True
            scaler.api.token_file = dashboard.token("old")
            await scaler.look(1002.0)
            assert not scaler.looked and dashboard.scaled == []
            scaler.api.token_file = dashboard.token(TOKEN)  # renewed, as a mounted secret is
            await scaler.look(1004.0)
            assert scaler.looked and dashboard.scaled

    asyncio.run(run())


def test_the_start_says_what_is_missing(dashboard: Dashboard) -> None:
    async def run() -> None:
        async with dashboard.served(token="wrong") as scaler:
            with pytest.raises(BadInput, match="RAY_AUTH_TOKEN"):
                await scaler.check()
        dashboard.page["applications"]["outside"]["external_scaler_enabled"] = False
        async with dashboard.served() as scaler:
            with pytest.raises(BadInput, match="external_scaler_enabled: true"):
                await scaler.check()
        dashboard.page["applications"] = {}
        async with dashboard.served() as scaler:
            with pytest.raises(BadInput, match="no application 'outside'"):
                await scaler.check()

    asyncio.run(run())


def test_the_token_is_found_where_ray_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_token() is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("home\n")
    assert find_token() == "home"
    (tmp_path / "given").write_text("path")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "given"))
    assert find_token() == "path"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "environment")
    assert find_token() == "environment" and find_token(tmp_path / "given") == "path"
    with pytest.raises(BadInput, match="nowhere"):
        find_token(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"applications": {}}, "applications"),
        ({"applications": {"a": {"deployments": {"b": {"slots": 1, "maximum": 1, "minimum": 2}}}}}, "above maximum"),
        ({"applications": {"a": {"policy": "no", "deployments": {"b": {"slots": 1, "maximum": 1}}}}}, "tail_demand"),
        ({"address": "localhost"}, "address"),
        ({"adress": "http://x"}, "adress"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = {"applications": {"a": {"deployments": {"b": {"slots": 1, "maximum": 1}}}}}
    (tmp_path / "scaler.yaml").write_text(json.dumps(good | change))
    with pytest.raises(BadInput, match=said):
        read_serve_scaler_settings(tmp_path / "scaler.yaml")


def test_counters_of_sources_that_come_go_and_begin_again_add_up() -> None:
    totals = Totals(1)
    steps: list[dict[str, tuple[float]]] = [
        {"old": (100.0,)},  # was there before: its 100 are not news
        {"old": (103.0,), "new": (4.0,)},
        {"new": (6.0,)},
        {"new": (1.0,)},  # began again
    ]
    for step in steps:
        totals.add(step, step)
    assert totals.sums == [3 + 4 + 2 + 1]

"""From live workflows, through the pages of a real gateway or picker, to wanted replicas."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from keda_rig import page_of
from patience import PATIENCE_S

from swarmx.adapters.books import MAX_PAGE_BYTES, PAGE_S, Books, read_book
from swarmx.adapters.fetch import fetch, page_client
from swarmx.adapters.gateway.access import digest
from swarmx.adapters.gateway.gateway import Gateway
from swarmx.adapters.gateway.listening import port_of
from swarmx.adapters.keda.external import ExternalScaler
from swarmx.adapters.keda.settings import ExternalScalerSettings
from swarmx.adapters.live_work import DemandSettings, LiveDemand, live_demand, token_seconds, with_parents
from swarmx.adapters.mock_replica import HiddenRule, MockOptions, mock_app
from swarmx.config import parse_config
from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.logs.table import write_log
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.sim.cluster import ReplicaSpec
from swarmx.types import Call, CallRecord

WRITERS = 6
SLOW = ReplicaSpec("r", slots=8, service=EngineConstants(1.0, 0.0, 0.0, 0.0), kv_capacity_tokens=100_000, batched=True)
STARTS_S = 60.0  # for processes on a busy machine


def log_of_runs(count: int = 20, parents: bool = True) -> list[CallRecord]:
    """Runs of a plan of 20 s and, 5 s later, six writers of 60 s each."""
    records = []
    for i in range(count):
        at = 100.0 * i
        plan = CallRecord(f"{i}/p", "plan", at, "ok", f"w{i}", type="plan", dispatched_s=at, finished_s=at + 20.0,
                          output_tokens=40)  # fmt: skip
        records.append(plan)
        for k in range(WRITERS):
            parent, begin = plan.call_id if parents else None, at + 25.0
            writer = replace(plan, call_id=f"{i}/{k}", model="write", type="write", parent_id=parent, arrival_s=begin)
            records.append(replace(writer, dispatched_s=begin, finished_s=begin + 60.0, output_tokens=60))
    return records


def live_plan(i: int, at: float = 0.0, **more: Any) -> Call:
    return Call(f"live{i}", "plan", at, type="plan", workflow_id=f"live{i}", **more)


def a_book(parents: bool = True) -> LiveDemand:
    return LiveDemand(LiveWork(fit_profiles(with_parents(log_of_runs(parents=parents)), windows_to(90.0))))


def seen(book: LiveDemand, now: float) -> dict[str, Any]:
    """The page as it comes out of the wire."""
    return {"demand": json.loads(json.dumps(book.page(now)))}


@pytest.mark.parametrize("parents", [True, False])
def test_a_live_call_s_downstream_work_stands_in_the_page_and_goes_with_it(parents: bool) -> None:
    book = a_book(parents)
    book.arrived(live_plan(0), None, 0.0)
    book.started("live0", 0.0)
    demand = read_book(seen(book, 0.0)["demand"]).models["write"]
    assert demand.mean["downstream"].sum() == pytest.approx(WRITERS * 60.0, rel=0.05)  # 25 to 85 s from now
    assert demand.mean["downstream"][0] == pytest.approx(0.0, abs=1e-9)
    book.ended(CallRecord("live0", "plan", 0.0, "ok", "live0"), 20.0)
    assert read_book(seen(book, 20.0)["demand"]).models["write"].mean["downstream"].sum() == 0.0


def test_only_calls_that_begin_a_workflow_count_as_arrivals() -> None:
    book = a_book()
    book.arrived(live_plan(0), None, 0.0)
    book.arrived(Call("x", "write", 1.0, type="write", workflow_id="live0"), None, 1.0)  # a workflow seen before
    book.arrived(Call("y", "write", 1.0, type="write", workflow_id="a", parent_id="p"), None, 1.0)  # names a parent
    book.arrived(
        Call("z", "write", 9.0, type="write", workflow_id="b", workflow_arrival_s=2.0), None, 9.0
    )  # began before
    alone = a_book()
    alone.arrived(live_plan(0), None, 0.0)
    arrivals = [b.live.demands(60.0)["write"].mean["arrivals"] for b in (book, alone)]
    assert np.array_equal(*arrivals)


def test_books_of_several_processes_add_up_and_no_process_counts_twice() -> None:
    one, two = a_book(), a_book()
    for i, book in enumerate((one, two)):
        book.arrived(live_plan(i), None, 0.0)
    books = Books()
    books.put("http://one/state/plan", seen(one, 0.0), 0.0)
    books.put("http://one/state/write", seen(one, 0.0), 0.0)
    single = books.demand("write", ["http://one/state/write"], 0.0)
    books.put("http://two/state/write", seen(two, 0.0), 0.0)
    both = books.demand("write", ["http://one/state/write", "http://two/state/write"], 0.0)
    assert single is not None and both is not None
    assert both.mean["downstream"] == pytest.approx(2 * single.mean["downstream"])
    assert both.variance["downstream"] == pytest.approx(2 * single.variance["downstream"])


def test_a_silent_book_is_believed_for_a_while_and_without_the_model_s_own_there_is_no_demand() -> None:
    plan, write = a_book(), a_book()
    plan.arrived(live_plan(0), None, 0.0)
    books = Books(stale_s=30.0)
    books.put("plan", seen(plan, 0.0), 0.0)
    assert books.demand("write", ["write"], 0.0) is None  # nobody has told of its own calls
    books.put("write", seen(write, 0.0), 20.0)
    found = books.demand("write", ["write"], 20.0)
    assert found is not None and found.mean["downstream"].sum() > 0
    books.put("write", seen(write, 0.0), 40.0)
    found = books.demand("write", ["write"], 40.0)
    assert found is not None and found.mean["downstream"].sum() == 0  # the other has been silent for 40 s
    books.put("write", {"endpoints": []}, 41.0)
    assert books.demand("write", ["write"], 41.0) is None
    assert books.demand("unknown", ["write"], 41.0) is None


@pytest.mark.parametrize(
    "spoil",
    [
        {"edges_s": [0.0, 10.0, 5.0]},
        {"edges_s": [0.0, float("nan")]},
        {"edges_s": [0, 10**400]},
        {"models": {"write": {"backlog": [[1.0], [1.0]]}}},
        {
            "models": {
                "write": {t: [[-1.0] * 6, [0.0] * 6] for t in ("backlog", "in_service", "downstream", "arrivals")}
            }
        },
        {"models": []},
        {"book": None, "models": None},
    ],
)
def test_nonsense_is_no_demand_instead_of_a_small_one(spoil: dict[str, Any]) -> None:
    books = Books()
    good = seen(a_book(), 0.0)
    books.put("u", good, 0.0)
    assert books.demand("write", ["u"], 0.0) is not None
    books.put("u", {"demand": good["demand"] | spoil}, 1.0)
    assert books.demand("write", ["u"], 1.0) is None


def test_windows_that_differ_are_not_added_up() -> None:
    short = LiveDemand(LiveWork(fit_profiles(log_of_runs(), windows_to(60.0))))
    books = Books()
    books.put("a", seen(a_book(), 0.0), 0.0)
    books.put("b", seen(short, 0.0), 0.0)
    assert books.demand("write", ["a"], 0.0) is None


def test_a_horizon_that_ends_before_replicas_are_ready_is_told(caplog: pytest.LogCaptureFixture) -> None:
    page = {"synced": True, "endpoints": [], **seen(a_book(), 0.0)}

    async def run() -> None:
        async with page_of(lambda: web.json_response(page)) as url, page_client(PAGE_S) as client:
            pool = {"sources": [url], "maximum": 8, "cold_s": 120.0, "model": "write"}
            scaler = ExternalScaler(ExternalScalerSettings.model_validate({"pools": {"w": pool}}))
            for _ in range(2):
                await scaler.look(client, {})

    asyncio.run(run())
    assert [r.message for r in caplog.records if "demand.horizon_s to 180" in r.message] == [
        "pool w: replicas take 120 s to start, demand is known for 90 s alone; set demand.horizon_s to 180"
    ]


def test_a_log_that_cannot_teach_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_log(log_of_runs(), path)
    with pytest.raises(BadInput, match=r"knows the models plan, write; none of other"):
        live_demand(DemandSettings(log=path), ["other"])
    with pytest.raises(BadInput, match=r"demand\.learned"):
        live_demand(DemandSettings(log=path, learned=True), ["plan"])
    write_log([replace(r, status="error") for r in log_of_runs()], path)
    with pytest.raises(BadInput, match="ended well"):
        live_demand(DemandSettings(log=path), ["plan"])


def test_seconds_of_a_token_come_from_the_log() -> None:
    assert token_seconds(log_of_runs()) == {"plan": pytest.approx(0.5), "write": pytest.approx(1.0)}


# ---- running things ----


@asynccontextmanager
async def replicas(count: int) -> AsyncIterator[list[str]]:
    """Emulated engines on which a call takes minutes."""
    options, runners, urls = MockOptions(rule=HiddenRule(mean_tokens=300, cv=0.1)), [], []
    for i in range(count):
        runner = web.AppRunner(
            mock_app(replace(SLOW, id=f"r{i}"), options), handler_cancellation=True, shutdown_timeout=0.05
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        urls.append(f"http://127.0.0.1:{port_of(site._server)}")  # type: ignore[arg-type]
        runners.append(runner)
    try:
        yield urls
    finally:
        for runner in runners:
            await runner.cleanup()


def gateway_config(folder: Path, urls: list[str], port: int, admin: int) -> str:
    write_log(log_of_runs(), folder / "log.parquet")
    pools = {name: {"replicas": [{"url": url, "slots": 8}]} for name, url in zip(("plan", "write"), urls, strict=True)}
    server = {"port": port, "admin": {"port": admin}, "drain_s": 0}
    return json.dumps({"model_pools": pools, "demand": {"log": str(folder / "log.parquet")}, "server": server})


def scaler_config(admin: str, **more: Any) -> dict[str, Any]:
    pool = {"minimum": 1, "maximum": 8, "cold_s": 60.0}
    return {"pools": {name: {**pool, "sources": [f"{admin}/state/{name}"]} for name in ("plan", "write")}, **more}


def plans(http: aiohttp.ClientSession, url: str, count: int) -> list[asyncio.Task[Any]]:
    """Workflows that begin, each with a plan that goes on for minutes."""

    async def one(i: int) -> None:
        headers = {"x-swarmx-workflow-id": f"run{i}", "x-swarmx-type": "plan"}
        body = {"model": "plan", "messages": [{"role": "user", "content": f"plan number {i}"}], "max_tokens": 300}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            await answer.read()

    return [asyncio.create_task(one(i)) for i in range(count)]


async def dropped(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_gateway_s_live_plans_order_writers_before_any_writer_arrives(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicas(2) as urls, aiohttp.ClientSession() as http, page_client(PAGE_S) as client:
            gateway = Gateway(parse_config(gateway_config(tmp_path, urls, 0, 0)).gateway())
            await gateway.start()
            scaler = ExternalScaler(
                ExternalScalerSettings.model_validate(scaler_config(f"http://127.0.0.1:{gateway.admin_port}"))
            )
            await scaler.look(client, {})
            assert scaler.wanted_replicas("write") == 1
            calls = plans(http, f"http://127.0.0.1:{gateway.port}", 4)
            async with asyncio.timeout(PATIENCE_S):
                while gateway.state.in_flight < 4:
                    await asyncio.sleep(0.02)
            await scaler.look(client, {})
            assert gateway.state.pools["write"].arrived == 0
            assert (scaler.wanted_replicas("write") or 0) >= 3  # 4 runs of 6 writers on 8 slots, 60 s from now
            (*_, receipt) = [r for r in scaler.receipts() if r["pool"] == "write"]
            assert max(receipt["terms"]["downstream"]) == pytest.approx(24.0, rel=0.1)
            await dropped(calls)
            await gateway.stop()

    asyncio.run(run())


def test_a_closed_page_asks_for_the_token_and_an_unknown_pool_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        config = json.loads(gateway_config(tmp_path, ["http://127.0.0.1:1", "http://127.0.0.1:2"], 0, 0))
        config["server"]["admin"] |= {"open_metrics": False, "token_sha256": digest("the-token")}
        gateway = Gateway(parse_config(json.dumps(config)).gateway())
        await gateway.start()
        admin = f"http://127.0.0.1:{gateway.admin_port}"
        settings = scaler_config(admin)
        async with page_client(PAGE_S) as client:
            async with client.get(f"{admin}/state/plan") as answer:
                assert answer.status == 401
            async with client.get(f"{admin}/state/other", headers={"Authorization": "Bearer the-token"}) as answer:
                assert (answer.status, "plan, write" in await answer.text()) == (404, True)
            closed = ExternalScaler(ExternalScalerSettings.model_validate(settings))
            assert await closed.look(client, {}) == {}
            for pool in settings["pools"].values():
                pool["token_env"] = "PAGES_TOKEN"
            with pytest.raises(BadInput, match="PAGES_TOKEN"):
                ExternalScaler(ExternalScalerSettings.model_validate(settings))
            monkeypatch.setenv("PAGES_TOKEN", "the-token")
            told = ExternalScaler(ExternalScalerSettings.model_validate(settings))
            assert set(await told.look(client, {})) == {"plan", "write"}
        await gateway.stop()

    asyncio.run(run())


def test_a_plan_picker_s_calls_order_writers_of_another_picker(tmp_path: Path) -> None:
    from swarmx.adapters.envoy.picker import Picker
    from swarmx.adapters.envoy.settings import PickerSettings

    async def run() -> None:
        write_log(log_of_runs(), tmp_path / "log.parquet")
        near = {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "scrape": {"every_s": 0}, "notice_s": 0}
        near |= {"demand": {"log": str(tmp_path / "log.parquet")}}
        made = {
            name: Picker(PickerSettings.model_validate(
                {"model": name, "replicas": [{"url": f"http://127.0.0.1:{port}", "slots": 8}], **near}))
            for port, name in enumerate(("plan", "write"), 1)
        }  # fmt: skip
        for picker in made.values():
            await picker.start()
        pools = {
            name: {"sources": [f"http://127.0.0.1:{picker.pages_port}/state"], "maximum": 8}
            for name, picker in made.items()
        }
        scaler = ExternalScaler(ExternalScalerSettings.model_validate({"pools": pools}))
        pool = made["plan"].pool
        rides = [await pool.pick(live_plan(i, pool.clock()), None, 1.0) for i in range(4)]
        async with page_client(PAGE_S) as client:
            await scaler.look(client, {})
            assert (scaler.wanted_replicas("write") or 0) >= 3
            for ride in rides:
                pool.end(ride, "ok")
            await scaler.look(client, {})
            assert scaler.watched["write"].scaler.memory["write"].history is not None
        for picker in made.values():
            await picker.stop()

    asyncio.run(run())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_gateway_and_external_scaler_as_processes_of_their_own(tmp_path: Path) -> None:
    port, admin, page, keda = (free_port() for _ in range(4))

    async def wanted(client: aiohttp.ClientSession, pool: str) -> float:
        async with asyncio.timeout(STARTS_S):
            while True:
                try:
                    found = json.loads(await fetch(client, f"http://127.0.0.1:{page}/state", MAX_PAGE_BYTES))
                    if found[pool]["wanted"] is not None:
                        return float(found[pool]["wanted"])
                except (aiohttp.ClientError, TimeoutError, KeyError):
                    pass
                await asyncio.sleep(0.1)

    async def run() -> None:
        async with replicas(2) as urls, aiohttp.ClientSession() as http, page_client(PAGE_S) as client:
            (tmp_path / "gateway.yaml").write_text(gateway_config(tmp_path, urls, port, admin))
            listens = {"listen": f"127.0.0.1:{keda}", "metrics_listen": f"127.0.0.1:{page}", "every_s": 0.2}
            (tmp_path / "scaler.yaml").write_text(json.dumps(scaler_config(f"http://127.0.0.1:{admin}", **listens)))
            verbs = (("serve", "gateway.yaml"), ("external-scaler", "scaler.yaml"))
            children = [
                subprocess.Popen([sys.executable, "-m", "swarmx.cli", verb, str(tmp_path / name)])
                for verb, name in verbs
            ]
            try:
                assert await wanted(client, "write") == 1
                calls = plans(http, f"http://127.0.0.1:{port}", 4)
                async with asyncio.timeout(STARTS_S):
                    while await wanted(client, "write") < 3:
                        await asyncio.sleep(0.1)
                state = json.loads(await fetch(client, f"http://127.0.0.1:{admin}/state/write", MAX_PAGE_BYTES))
                assert state["arrived"] == 0
                await dropped(calls)
            finally:
                for child in children:
                    child.terminate()
                for child in children:
                    child.wait(20)

    asyncio.run(run())

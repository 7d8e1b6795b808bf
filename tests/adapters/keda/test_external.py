"""From pickers' pages to wanted replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from keda_rig import page_of, serving

from swarmx.adapters.books import MAX_PAGE_BYTES, PAGE_S
from swarmx.adapters.fetch import page_client
from swarmx.adapters.keda.external import ExternalScaler
from swarmx.adapters.keda.settings import ExternalScalerSettings, read_scaler_settings
from swarmx.adapters.keda.states import sample_of
from swarmx.errors import BadInput


def _page(ready: int = 2, running: int = 0, held: int = 0, **more: Any) -> dict[str, Any]:
    rows = [
        {"endpoint": f"10.0.0.{i}:8000", "slots": 4, "speed": 1.0, "running": running, "waiting": 0, "ours": running}
        for i in range(ready)
    ]
    counts = {"held": held, "arrived": 100, "ended": 90, "unserved": 0, "service_s": 2.0}
    return {"owns_queue": True, "synced": True, "endpoints": rows, **counts, **more}


def test_counts_add_up_over_pickers_and_endpoints_are_the_owners() -> None:
    follower = _page(ready=1, held=0, owns_queue=False)
    sample = sample_of("p", [follower, _page(ready=3, running=4, held=5)], 1.0, 60.0)
    assert (len(sample.replicas), sample.waiting, sample.running) == (3, 5.0, 12.0)
    assert (sample.arrived, sample.finished, sample.service_s) == (200.0, 180.0, 2.0)


def test_requests_without_an_endpoint_ask_for_the_first_replica() -> None:
    sample = sample_of("p", [_page(ready=0, unserved=7)], 1.0, 60.0, unserved_before=4.0)
    assert sample.waiting == 3.0
    assert sample_of("p", [_page(ready=0, unserved=2)], 1.0, 60.0, unserved_before=4.0).waiting == 0.0  # restarted


def test_ordered_replicas_that_are_no_endpoints_yet_are_starting() -> None:
    sample = sample_of("p", [_page(ready=2)], 1.0, 60.0, ordered=5)
    assert (sample.count("ready"), sample.count("starting")) == (2, 3)


def test_nonsense_in_a_page_is_zero() -> None:
    page = _page(held=float("nan"), arrived="many", ended=-1)  # type: ignore[arg-type]
    page["endpoints"][0] = {"endpoint": "x", "slots": None, "speed": float("inf")}
    sample = sample_of("p", [page], 1.0, 60.0)
    assert (sample.waiting, sample.arrived, sample.finished) == (0.0, 0.0, 0.0)
    assert (sample.replicas[0].slots, sample.replicas[0].speed) == (1, 1.0)
    assert sample_of("p", [_page(held=10**400)], 1.0, 60.0).waiting == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["abc", 5, [1, None], {"a": 1}])
def test_rows_that_are_none_are_no_endpoints(rows: object) -> None:
    assert sample_of("p", [{**_page(ready=2), "endpoints": rows}], 1.0, 60.0).replicas == ()


def _settings(source: str, **pool: Any) -> ExternalScalerSettings:
    one = {"sources": [source], "minimum": 0, "maximum": 8, "policy": "queue_length", **pool}
    return ExternalScalerSettings.model_validate({"pools": {"llama": one}})


def test_load_wants_replicas_and_silence_holds_them() -> None:
    bad = [
        lambda: web.Response(status=500),
        lambda: web.Response(text="<html>"),
        lambda: web.Response(text="[1]"),
        lambda: web.Response(text="[" * 100_000),
        lambda: web.json_response({"synced": False}),
        lambda: web.json_response(_page(ready=1, padding="x" * MAX_PAGE_BYTES)),
        lambda: web.Response(status=307, headers={"location": "/elsewhere"}),
    ]

    async def run() -> None:
        first = _page(ready=1, running=4, held=12)
        async with page_of(lambda: web.json_response(first), *bad) as url, page_client(PAGE_S) as client:
            scaler = ExternalScaler(_settings(url))
            now = [1000.0]
            scaler.clock = lambda: now[0]
            assert scaler.wanted_replicas("llama") is None
            await scaler.look(client, {})
            wanted = scaler.wanted_replicas("llama")
            assert wanted is not None and 4 <= wanted <= 8
            for _ in bad:
                now[0] += 5
                await scaler.look(client, {})
                assert scaler.wanted_replicas("llama") == wanted
            now[0] += 100  # beyond stale_s
            assert scaler.wanted_replicas("llama") is None

    asyncio.run(run())


def test_a_picker_that_hangs_or_is_gone_holds_the_replicas(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("unreachable")

    async def run() -> None:
        async with serving(hangs) as url, page_client(0.1) as client:
            assert await ExternalScaler(_settings(url)).look(client, {}) == {}
        async with page_client(0.1) as client:
            assert await ExternalScaler(_settings(url)).look(client, {}) == {}
            assert await ExternalScaler(_settings("http://[::1/state")).look(client, {}) == {}

    asyncio.run(run())
    assert [r.message for r in caplog.records] == ["pool llama: no picker answers, its replicas stay"] * 3


def test_from_zero_the_first_refused_request_wakes_the_pool() -> None:
    async def run() -> None:
        quiet = _page(ready=0, arrived=0, ended=0, service_s=None)
        asked = {**quiet, "arrived": 3, "unserved": 3}
        pages = (lambda: web.json_response(quiet), lambda: web.json_response(asked))
        async with page_of(*pages) as url, page_client(PAGE_S) as client:
            scaler = ExternalScaler(_settings(url, policy="tail_demand"))
            now = [1000.0]
            scaler.clock = lambda: now[0]
            await scaler.look(client, {})
            assert scaler.wanted_replicas("llama") == 0
            now[0] += 5
            await scaler.look(client, {})
            assert (scaler.wanted_replicas("llama") or 0) >= 1

    asyncio.run(run())


def test_a_real_pickers_page_is_understood() -> None:
    from swarmx.adapters.envoy.picker import Picker
    from swarmx.adapters.envoy.settings import PickerSettings

    async def run() -> None:
        rows = [{"url": f"http://127.0.0.1:{port}", "slots": 4} for port in (1, 2)]
        near = {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "scrape": {"every_s": 0}, "notice_s": 0}
        picker = Picker(PickerSettings.model_validate({"model": "m", "replicas": rows, **near}))
        await picker.start()
        scaler = ExternalScaler(_settings(f"http://127.0.0.1:{picker.pages_port}/state", minimum=2))
        async with page_client(PAGE_S) as client:
            decided = await scaler.look(client, {})
        assert decided["llama"].target == 2 == scaler.wanted_replicas("llama")
        await picker.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pools: {a: {sources: ['http://x'], maximum: 3, policy: magic}}", "magic"),
        ("pools: {a: {sources: ['http://x'], maximum: 3, options: {leveel: 1}}}", "no option 'leveel'; it has level"),
        ("pools: {a: {sources: ['http://x'], maximum: 1, minimum: 2}}", "above maximum"),
        ("pools: {a: {sources: ['http://x'], maximum: 1}}\nmode: direct", "needs a target"),
        ("pools: {a: {sources: [], maximum: 1}}", "pools.a.sources"),
        ("pools: {a: {sources: 'http://x', maximum: 1}}", "pools.a.sources: must be a list"),
        ("pools: {a: {sources: [x], maximum: 1}}", "begins with http:// or https://"),
        ("pools: {a: {maximum: 1, least: 2, sources: ['http://x']}}", "known keys of pools.a are sources, policy"),
        ("pools: [", "not YAML"),
    ],
)
def test_a_bad_file_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "scaler.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as refused:
        read_scaler_settings(path)
    assert str(path) in str(refused.value)

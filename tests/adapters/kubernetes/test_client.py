"""The light client against an emulated API server, with the line disturbed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from aiohttp import web
from k8s_rig import PODS, Asked, Cut, cluster, pod, status
from patience import until

from swarmx.adapters.kubernetes.client import Api, ApiError, in_cluster
from swarmx.adapters.kubernetes.follow import follow
from swarmx.errors import BadInput

PATH = "/api/v1/namespaces/default/pods"


def test_what_is_created_can_be_read_and_patched() -> None:
    async def run() -> None:
        async with cluster() as (_, api, _line):
            await api.create(PATH, pod("a", "10.0.0.1"))
            changed = await api.patch(f"{PATH}/a", {"metadata": {"annotations": {"x": "y"}}})
            assert changed["metadata"]["annotations"] == {"x": "y"}
            with pytest.raises(ApiError, match="404"):
                await api.get(f"{PATH}/b")

    asyncio.run(run())


def test_a_renewed_token_is_read_again_after_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    def expired(request: Asked) -> web.Response | None:
        if request.headers["authorization"] == "Bearer old":
            token.write_text("new\n")  # as the kubelet does
            return status(401, "Unauthorized")
        return None

    async def run() -> None:
        async with cluster(token) as (k, api, line):
            k.objects[PODS, "default", "a"] = pod("a", "10.0.0.1")
            line.disturb = expired
            assert len((await api.get(PATH))["items"]) == 1
            token.write_text("old")
            async for event in api.watch(PATH, "0"):
                assert event["object"]["metadata"]["name"] == "a"
                break

    asyncio.run(run())


def test_a_token_that_stays_bad_is_an_error_without_the_token_in_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token")

    async def run() -> None:
        async with cluster(token) as (_, api, line):
            line.disturb = lambda request: status(401, "Unauthorized")
            with pytest.raises(ApiError) as refused:
                await api.get(PATH)
            assert refused.value.status == 401 and "secret" not in str(refused.value)
            assert len(line.seen) == 2

    asyncio.run(run())


def _followed(told: list[set[str]], api: Api) -> asyncio.Task[None]:
    return asyncio.create_task(follow(api, PATH, lambda objects: told.append(set(objects)), first_wait_s=0.02))


def test_changes_arrive_and_a_watch_that_ends_goes_on() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            await api.create(PATH, pod("a", "10.0.0.1"))
            told: list[set[str]] = []
            task = _followed(told, api)
            await until(lambda: bool(told) and bool(line.watches))
            await api.create(PATH, pod("b", "10.0.0.2"))
            await until(lambda: told[-1] == {"a", "b"})
            task.cancel()

    asyncio.run(run())


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            line.disturb = lambda asked: web.Response(content_type="text/plain") if asked.query.get("watch") else None
            loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            task = asyncio.create_task(follow(api, PATH, lambda objects: None, first_wait_s=0.2))
            await until(lambda: len(line.watches) == 4)
            assert loop.time() - began > 0.5
            task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["status", "event", "cut", "garbage", "server error"])
def test_a_broken_watch_leads_to_a_new_list_and_loses_nothing(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    broken = {
        "status": lambda: status(410, "Expired"),
        "event": lambda: web.Response(
            text='{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
        ),
        "cut": Cut,
        "garbage": lambda: web.Response(text="not json\n"),
        "server error": lambda: status(500, "InternalError"),
    }[how]

    async def run() -> None:
        async with cluster() as (_, api, line):
            await api.create(PATH, pod("a", "10.0.0.1"))
            breaks = [2]

            def disturb(request: Asked) -> web.Response | None:
                if request.query.get("watch") and breaks[0] > 0:
                    breaks[0] -= 1
                    return broken()
                return None

            line.disturb = disturb
            told: list[set[str]] = []
            task = _followed(told, api)
            await until(lambda: breaks[0] == 0 and len(line.watches) >= 3)
            await api.create(PATH, pod("b", "10.0.0.2"))
            await until(lambda: told[-1] == {"a", "b"})
            assert all(names for names in told)  # never empty on the way
            assert sum(1 for r in line.seen if r.method == "GET" and not r.query.get("watch")) >= 3
            task.cancel()

    asyncio.run(run())


def test_a_server_that_cannot_be_reached_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def run() -> None:
        async with cluster() as (_, api, line):
            await api.create(PATH, pod("a", "10.0.0.1"))

            def unreachable(request: Asked) -> None:
                raise ConnectionResetError

            line.disturb = unreachable
            told: list[set[str]] = []
            task = _followed(told, api)
            await until(lambda: len(line.seen) >= 3)
            assert told == []
            line.disturb = lambda request: None
            await until(lambda: bool(told) and told[-1] == {"a"})
            task.cancel()

    asyncio.run(run())


def test_outside_a_cluster_a_sentence_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with in_cluster(tmp_path, {}):
            pass

    with pytest.raises(BadInput, match="must run in a Kubernetes pod"):
        asyncio.run(run())

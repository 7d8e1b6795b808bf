"""Two pickers against one emulated API server: endpoints from the pool, one owner, hand-over at shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from k8s_rig import Line, cluster, connected, pod, status
from patience import PATIENCE_S, until

from swarmx.adapters.envoy.messages import NOT_SERVING, PROCESS, SERVING, pb
from swarmx.adapters.envoy.picker import Picker
from swarmx.adapters.envoy.settings import PickerSettings
from swarmx.adapters.kubernetes import client
from swarmx.adapters.kubernetes.client import Api
from swarmx.adapters.kubernetes.lease import PodLabel

DEPLOY = Path(__file__).parents[3] / "deploy"
LABEL = "swarmx.io/queue-owner"
SETTINGS = PickerSettings.model_validate(
    {
        "model": "m", "discover": {"kind": "inference_pool", "name": "llm"}, "listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0", "scrape": {"every_s": 0}, "notice_s": 0, "drain_s": 0.2,
        "lease": {"name": "picker", "duration_s": 4.0, "renew_s": 0.2},
    }
)  # fmt: skip


async def _pick(port: int) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        process = channel.stream_stream(f"/{PROCESS[0]}/{PROCESS[1]}", None, pb.ProcessingResponse.FromString)()
        await process.write(
            pb.ProcessingRequest(request_headers=pb.HttpHeaders(end_of_stream=True)).SerializeToString()
        )
        answer = await process.read()
        await process.done_writing()
    return str(answer.request_headers.response.header_mutation.set_headers[0].header.raw_value, "ascii")


def used(lines: list[Line]) -> set[tuple[str, str]]:
    """(resource, verb) of every request, as a Role names them."""
    found = set()
    for request in [request for line in lines for request in line.seen]:
        resource, _, name = request.path.partition("/namespaces/default/")[2].partition("/")
        verb = {"POST": "create", "PATCH": "patch", "GET": "get" if name else "list"}[request.method]
        found.add((resource, "watch" if request.query.get("watch") else verb))
    return found


def granted() -> set[tuple[str, str]]:
    """What the manifest's Role allows the picker."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "picker-rbac.yaml").read_text())
    (role,) = (d for d in documents if d["kind"] == "Role")
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_owner_is_known_everywhere_and_hands_over_within_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Line] = []

    async def run() -> None:
        async with cluster() as (_, api, line):

            @asynccontextmanager
            async def here(*_: Any) -> AsyncIterator[Api]:
                async with connected(line.target) as (own, its):
                    lines.append(its)
                    yield own

            monkeypatch.setattr(client, "in_cluster", here)
            spec = {"selector": {"matchLabels": {"app": "llm"}}, "targetPorts": [{"number": 8000}]}
            pools = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
            pods = "/api/v1/namespaces/default/pods"
            await api.create(pools, {"metadata": {"name": "llm", "namespace": "default"}, "spec": spec})
            await api.create(pods, pod("engine", "10.0.0.9"))
            for name in ("p1", "p2"):
                left = {"app": "llm", **({LABEL: "true"} if name == "p2" else {})}  # its owner of before was killed
                await api.create(pods, pod(name, "10.0.1.1", ready=False, labels=left))
            pickers = []
            for name in ("p1", "p2"):
                monkeypatch.setenv("POD_NAME", name)
                picker = Picker(SETTINGS)
                await picker.start()
                await until(lambda picker=picker: picker.lease is not None and picker.is_synced())  # type: ignore[misc]
                if not pickers:
                    await until(lambda picker=picker: picker.pool.owns_queue)  # type: ignore[misc]
                pickers.append(picker)
            first, second = pickers

            async def labels(name: str) -> dict[str, str]:
                return dict((await api.get(f"{pods}/{name}"))["metadata"]["labels"])

            async def labelled(name: str, value: str | None = "true") -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while (await labels(name)).get(LABEL) != value:
                        await asyncio.sleep(0.02)

            await labelled("p1")
            await labelled("p2", None)
            assert first.server.status_of("readiness") == SERVING
            assert second.server.status_of("readiness") == NOT_SERVING and second.is_synced()
            assert [await _pick(p.port) for p in pickers] == ["10.0.0.9:8000"] * 2  # both can answer
            await first.stop()
            await until(lambda: second.pool.owns_queue)
            await labelled("p2")
            assert second.server.status_of(PROCESS[0]) == SERVING
            await second.stop()

    asyncio.run(run())
    assert granted() - used(lines) == {("inferenceobjectives", "watch")}  # a kind that the emulated cluster lacks
    assert used(lines) <= granted()


def test_a_label_that_cannot_be_set_is_tried_again_and_then_left() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            await PodLabel(api, None).set("x", "true")
            assert not line.seen
            await PodLabel(api, "nobody").set("x", "true", attempts=3, wait_s=0.0)
            assert len(line.seen) == 3

    asyncio.run(run())


def test_a_label_that_is_wanted_anew_is_not_undone_by_an_earlier_try() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            pods = "/api/v1/namespaces/default/pods"
            await api.create(pods, pod("p1", "10.0.1.1"))
            line.disturb = lambda asked: status(500, "Down") if asked.method == "PATCH" else None
            label = PodLabel(api, "p1")
            undoing = asyncio.create_task(label.set(LABEL, None, wait_s=0.2))
            await until(lambda: line.seen[-1].method == "PATCH")
            line.disturb = lambda asked: None
            await label.set(LABEL, "true")
            await undoing
            assert (await api.get(f"{pods}/p1"))["metadata"]["labels"].get(LABEL) == "true"

    asyncio.run(run())

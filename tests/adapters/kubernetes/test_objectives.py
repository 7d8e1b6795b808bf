"""InferenceObjectives of a pool as they come, change and go; clusters that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import kmock
import pytest
from aiohttp import web
from k8s_rig import Asked, cluster
from patience import PATIENCE_S, until

from swarmx.adapters.kubernetes.objectives import priorities_of, watch_objectives

PATH = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/default/inferenceobjectives"
OBJECTIVES = kmock.resource("inference.networking.x-k8s.io/v1alpha2/inferenceobjectives")


def _objective(name: str, pool: str = "llm", **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"poolRef": {"name": pool}, **spec}}


def test_only_objectives_of_the_pool_count_and_what_cannot_be_read_is_zero() -> None:
    objects = {
        "chat": _objective("chat", priority=2),
        "other": _objective("other", pool="embeddings", priority=5),
        "plain": _objective("plain"),
        "odd": _objective("odd", priority="much"),
        "empty": {},
    }
    assert priorities_of(objects, "llm") == {"chat": 2, "plain": 0, "odd": 0}


def test_priorities_are_followed_through_their_changes() -> None:
    async def run() -> None:
        async with cluster() as (k, api, line):
            k.resources[OBJECTIVES] = {}
            told: list[Mapping[str, int]] = []
            task = asyncio.create_task(watch_objectives(api, "llm", "default", told.append))
            await until(lambda: told == [{}] and bool(line.watches))
            await api.create(PATH, _objective("batch", priority=-1))
            await until(lambda: told[-1] == {"batch": -1})
            await api.patch(f"{PATH}/batch", {"spec": {"priority": -3}})
            await until(lambda: told[-1] == {"batch": -3})
            await api.create(PATH, _objective("elsewhere", pool="other", priority=9))
            await api.create(PATH, _objective("chat", priority=1))
            await until(lambda: told[-1] == {"batch": -3, "chat": 1})
            assert len(told) == 4, "another pool's objective is no change"
            task.cancel()

    asyncio.run(run())


def test_a_server_that_is_away_at_first_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmx.adapters.kubernetes.objectives.AGAIN_S", 0.01)

    def gone(request: Asked) -> None:
        raise ConnectionResetError

    async def run() -> None:
        async with cluster() as (k, api, line):
            k.resources[OBJECTIVES] = {}
            await api.create(PATH, _objective("chat", priority=1))
            told: list[Mapping[str, int]] = []
            line.seen.clear()
            line.disturb = gone
            task = asyncio.create_task(watch_objectives(api, "llm", "default", told.append))
            await until(lambda: len(line.seen) > 2)
            line.disturb = lambda request: None
            await until(lambda: told == [{"chat": 1}])
            task.cancel()

    asyncio.run(run())


def test_a_cluster_without_the_kind_is_asked_once() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            line.disturb = lambda request: web.json_response({"kind": "Status", "code": 404}, status=404)
            await asyncio.wait_for(watch_objectives(api, "llm", "default", lambda found: None), PATIENCE_S)
            assert len(line.seen) == 1

    asyncio.run(run())

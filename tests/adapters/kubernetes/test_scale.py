"""The scale subresource and the pods that leave first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kmock
import pytest
from aiohttp import web
from k8s_rig import HPAS, PODS, Asked, Line, cluster, pod, status

from swarmx.adapters.kubernetes.scale import COST, DRAIN, Workload
from swarmx.errors import BadInput
from swarmx.scaling.decisions import Scale


@asynccontextmanager
async def workload(replicas: int) -> AsyncIterator[tuple[Workload, dict[str, int], Line, Any]]:
    """A Deployment with pods 10.0.0.1.. behind it; the emulator has no scale subresource, so it is given one."""
    async with cluster() as (k, api, line):
        now = {"replicas": replicas}

        def scale(request: Any) -> dict[str, Any]:
            if request.method.name == "PATCH":
                now["replicas"] = request.data["spec"]["replicas"]
            return {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": dict(now), "status": dict(now)}

        deployments = kmock.resource("apps/v1/deployments")
        k.objects[deployments, "default", "llm"] = {"metadata": {"name": "llm"}, "spec": {}}
        k[deployments, kmock.subresource("scale")] << scale
        for i in range(1, replicas + 1):
            k.objects[PODS, "default", f"llm-{i}"] = pod(f"llm-{i}", f"10.0.0.{i}")
        yield Workload(api, "Deployment", "default", "llm"), now, line, k


def test_more_replicas_are_ordered_on_top_of_those_that_drain() -> None:
    async def run() -> None:
        async with workload(2) as (target, now, line, _):
            await target.carry_out(Scale("p", 4, add={"default": 3}))
            assert now["replicas"] == 5
            sent = line.seen[-1]
            assert sent.path.endswith("/deployments/llm/scale")
            assert sent.headers["content-type"] == "application/merge-patch+json"

    asyncio.run(run())


def test_a_replica_drains_first_and_goes_once_it_is_empty() -> None:
    async def run() -> None:
        async with workload(3) as (target, now, _, _k):
            await target.carry_out(Scale("p", 2, drain=("10.0.0.2:8000",)))
            assert now["replicas"] == 3
            marked = (await target.api.get("/api/v1/namespaces/default/pods/llm-2"))["metadata"]["annotations"]
            assert marked[DRAIN] == "true" and int(marked[COST]) < 0
            others = await target.api.get("/api/v1/namespaces/default/pods/llm-1")
            assert "annotations" not in others["metadata"]
            await target.carry_out(Scale("p", 2, remove=("10.0.0.2:8000",)))
            assert now["replicas"] == 2

    asyncio.run(run())


def test_a_replica_that_is_wanted_again_loses_its_marks() -> None:
    async def run() -> None:
        async with workload(2) as (target, _, line, _k):
            await target.mark(["10.0.0.1:8000"], [])
            await target.mark([], ["10.0.0.1:8000"])
            body = json.loads(line.seen[-1].content)
            assert body == {"metadata": {"annotations": {COST: None, DRAIN: None}}}

    asyncio.run(run())


def test_beside_keda_only_the_order_of_leaving_is_set() -> None:
    async def run() -> None:
        async with workload(2) as (target, _, _line, _k):
            await target.mark(["10.0.0.1:8000"], [], drain=False)
            notes = (await target.api.get("/api/v1/namespaces/default/pods/llm-1"))["metadata"]["annotations"]
            assert COST in notes and DRAIN not in notes

    asyncio.run(run())


def test_a_conflict_is_tried_once_more() -> None:
    async def run() -> None:
        async with workload(2) as (target, now, line, _):
            conflicts = [1]

            def disturb(request: Asked) -> web.Response | None:
                if request.method == "PATCH" and conflicts:
                    conflicts.pop()
                    return status(409, "Conflict")
                return None

            line.disturb = disturb
            assert await target.set_replicas(3) == 3 == now["replicas"]

    asyncio.run(run())


def test_direct_mode_refuses_a_workload_that_an_hpa_scales() -> None:
    async def run() -> None:
        async with workload(2) as (target, _, _line, k):
            await target.check_alone()
            spec = {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "maxReplicas": 4}
            k.objects[HPAS, "default", "keda-hpa-llm"] = {"metadata": {"name": "keda-hpa-llm"}, "spec": spec}
            with pytest.raises(BadInput, match="keda-hpa-llm"):
                await target.check_alone()

    asyncio.run(run())

"""Endpoints of an InferencePool as pods come, get ready, drain and go."""

from __future__ import annotations

import asyncio

import pytest
from k8s_rig import cluster, pod
from patience import until

from swarmx.adapters.envoy.endpoints import Endpoint
from swarmx.adapters.kubernetes.inference_pool import endpoints_of, watch_pool

POOLS_PATH = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
PODS_PATH = "/api/v1/namespaces/default/pods"


def _pool(port: int = 8000) -> dict[str, object]:
    spec = {"selector": {"matchLabels": {"app": "llm"}}, "targetPorts": [{"number": port}]}
    return {"metadata": {"name": "llm", "namespace": "default"}, "spec": spec}


def test_ready_pods_are_endpoints_and_leaving_ones_drain() -> None:
    ready = pod("a", "10.0.0.1", annotations={"swarmx.io/slots": "16", "swarmx.io/speed": "2.5"})
    ready["metadata"]["labels"]["swarmx.io/device"] = "h100"
    assert endpoints_of(ready, 8000, "swarmx.io/device") == [Endpoint("10.0.0.1:8000", "h100", 16, 2.5)]
    assert endpoints_of(pod("a", "10.0.0.1", ready=False), 8000, "d") == []
    leaving = pod("a", "10.0.0.1", ready=False, deletionTimestamp="2026-01-01T00:00:00Z")
    assert [e.draining for e in endpoints_of(leaving, 8000, "d")] == [True]
    marked = pod("a", "10.0.0.1", annotations={"swarmx.io/drain": "true"})
    assert [e.draining for e in endpoints_of(marked, 8000, "d")] == [True]
    assert endpoints_of(pod("a", "fd00::1"), 8000, "d")[0].address == "[fd00::1]:8000"
    assert endpoints_of({"metadata": {}, "status": {}}, 8000, "d") == []


@pytest.mark.parametrize("text", ["many", "-1", "0", "nan", "1e99"])
def test_an_annotation_that_cannot_be_read_does_not_take_a_pod_out(text: str) -> None:
    (found,) = endpoints_of(pod("a", "10.0.0.1", annotations={"swarmx.io/slots": text}), 8000, "d")
    assert found == Endpoint("10.0.0.1:8000")


def test_the_pool_is_followed_through_its_changes() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            told: list[tuple[str, ...]] = []

            def tell(found: tuple[Endpoint, ...]) -> None:
                told.append(tuple(e.address for e in found))

            task = asyncio.create_task(watch_pool(api, "llm", "default", "swarmx.io/device", tell))
            await until(lambda: told == [()])  # no pool yet
            await until(lambda: bool(line.watches))
            await api.create(POOLS_PATH, _pool())
            await api.create(PODS_PATH, pod("a", "10.0.0.1"))
            await until(lambda: told[-1] == ("10.0.0.1:8000",))
            await until(lambda: any(r.path == PODS_PATH for r in line.watches))
            await api.create(PODS_PATH, pod("b", "10.0.0.2"))
            await until(lambda: told[-1] == ("10.0.0.1:8000", "10.0.0.2:8000"))
            await api.patch(f"{PODS_PATH}/a", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
            await until(lambda: told[-1] == ("10.0.0.2:8000",))
            await api.patch(f"{POOLS_PATH}/llm", {"spec": {"targetPorts": [{"number": 9000}]}})
            await until(lambda: told[-1] == ("10.0.0.2:9000",))
            selected = next(r for r in line.seen if r.path == PODS_PATH and "labelSelector" in r.query)
            assert selected.query["labelSelector"] == "app=llm"
            task.cancel()

    asyncio.run(run())

"""KEDA's contract, driven by a stub that protoc makes from its proto."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from swarmx.adapters.keda.server import KedaServer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ModuleType]:
    pytest.importorskip("grpc_tools", reason="the stub is compiled by grpcio-tools")
    out = tmp_path_factory.mktemp("stub")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"--python_out={out}"]
    subprocess.run([*command, f"--grpc_python_out={out}", "externalscaler.proto"], check=True)
    sys.path.insert(0, str(out))
    try:
        import externalscaler_pb2
        import externalscaler_pb2_grpc
    finally:
        sys.path.remove(str(out))
    return externalscaler_pb2, externalscaler_pb2_grpc


class Said:
    """Wanted replicas as a test says them."""

    pools = ("llama", "qwen")

    def __init__(self, **wanted: float | None) -> None:
        self.wanted = wanted

    def wanted_replicas(self, pool: str) -> float | None:
        return self.wanted[pool]


@asynccontextmanager
async def keda(stub: tuple[ModuleType, ModuleType], said: Said) -> AsyncIterator[Any]:
    server = KedaServer(said)
    port = await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield stub[1].ExternalScalerStub(channel)
    await server.stop()


def _ref(stub: Any, pool: str | None = "llama") -> Any:
    metadata = {"scalerAddress": "x:9091"} | ({"pool": pool} if pool else {})
    return stub[0].ScaledObjectRef(name="llm", namespace="default", scalerMetadata=metadata)


def test_the_metric_is_the_number_of_replicas_wanted_with_target_one(stub: Any) -> None:
    async def run() -> None:
        async with keda(stub, Said(llama=3.0, qwen=0.0)) as client:
            (spec,) = (await client.GetMetricSpec(_ref(stub))).metricSpecs
            assert (spec.targetSize, spec.targetSizeFloat) == (1, 1.0)
            request = stub[0].GetMetricsRequest(scaledObjectRef=_ref(stub), metricName=spec.metricName)
            (value,) = (await client.GetMetrics(request)).metricValues
            assert (value.metricName, value.metricValue, value.metricValueFloat) == (spec.metricName, 3, 3.0)
            assert (await client.IsActive(_ref(stub))).result is True
            assert (await client.IsActive(_ref(stub, "qwen"))).result is False

    asyncio.run(run())


def test_activity_is_pushed_when_it_changes(stub: Any) -> None:
    async def run() -> None:
        said = Said(llama=0.0, qwen=None)
        async with keda(stub, said) as client:
            stream = client.StreamIsActive(_ref(stub))
            assert (await stream.read()).result is False
            said.wanted["llama"] = 1.0
            assert (await stream.read()).result is True
            said.wanted["llama"] = 5.0  # no change of activity
            said.wanted["llama"] = None  # nothing known: no change either
            await asyncio.sleep(0.6)
            said.wanted["llama"] = 0.0
            assert (await stream.read()).result is False
            stream.cancel()

    asyncio.run(run())


def test_what_is_not_known_is_an_error_and_never_a_zero(stub: Any) -> None:
    async def run() -> None:
        async with keda(stub, Said(llama=None, qwen=None)) as client:
            for call in (
                client.IsActive(_ref(stub)),
                client.GetMetrics(stub[0].GetMetricsRequest(scaledObjectRef=_ref(stub))),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() == grpc.StatusCode.UNAVAILABLE

    asyncio.run(run())


def test_an_unknown_pool_or_metric_is_refused_with_the_known_ones(stub: Any) -> None:
    async def run() -> None:
        async with keda(stub, Said(llama=1.0, qwen=1.0)) as client:
            for ref in (_ref(stub, "nothing"), _ref(stub, None)):
                with pytest.raises(grpc.aio.AioRpcError, match="llama, qwen"):
                    await client.GetMetricSpec(ref)
            request = stub[0].GetMetricsRequest(scaledObjectRef=_ref(stub), metricName="cpu")
            with pytest.raises(grpc.aio.AioRpcError, match="swarmx-wanted-replicas"):
                await client.GetMetrics(request)

    asyncio.run(run())

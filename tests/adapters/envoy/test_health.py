"""gRPC health checks as a kubelet and a proxy make them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from patience import until

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.messages import HEALTH, NOT_SERVING, PROCESS, SERVING, health, pb
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.seen import Watcher
from swarmx.adapters.envoy.server import PickerServer
from swarmx.adapters.envoy.settings import TlsSettings
from swarmx.adapters.envoy.stream import Stream, StreamRules
from swarmx.errors import BadInput
from swarmx.types import ReplicaState


async def _server(ready: list[bool], tls: TlsSettings | None = None) -> tuple[PickerServer, int]:
    pool = Pool(Lanes("push"), asyncio.get_running_loop().time, PickLimits(), Counters())
    pool.set_states([ReplicaState("10.0.0.1:80", "m")])
    server = PickerServer(pool, StreamRules("m"), lambda: ready[0])
    return server, await server.start("127.0.0.1:0", None if tls is None else tls.read())


def _check(channel: Any, service: str) -> Any:
    call = channel.unary_unary(
        f"/{HEALTH}/Check", health.HealthCheckRequest.SerializeToString, health.HealthCheckResponse.FromString
    )
    return call(health.HealthCheckRequest(service=service))


def test_liveness_is_always_serving_and_readiness_follows_the_picker() -> None:
    async def run() -> None:
        ready = [False]
        server, port = await _server(ready)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert (await _check(channel, "liveness")).status == SERVING
            for name in ("readiness", PROCESS[0], ""):
                ready[0] = False
                assert (await _check(channel, name)).status == NOT_SERVING
                ready[0] = True
                assert (await _check(channel, name)).status == SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
                await _check(channel, "nothing")
            watch = channel.unary_stream(
                f"/{HEALTH}/Watch", health.HealthCheckRequest.SerializeToString, health.HealthCheckResponse.FromString
            )(health.HealthCheckRequest(service="readiness"))
            assert (await watch.read()).status == SERVING
            server.draining = True
            assert (await watch.read()).status == NOT_SERVING
            watch.cancel()
        await server.drain(0)

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificate is made with openssl")
def test_tls_is_spoken_where_a_certificate_is_given(tmp_path: Path) -> None:
    files = TlsSettings(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    with pytest.raises(BadInput, match=r"cert\.pem .* cannot be used"):
        files.read()
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(files.key), "-out", str(files.certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)

    async def run() -> None:
        server, port = await _server([True], files)
        trust = grpc.ssl_channel_credentials(files.certificate.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", trust) as channel:
            assert (await _check(channel, "readiness")).status == SERVING
        await server.drain(0)

    asyncio.run(run())


@pytest.mark.parametrize("watched", [False, True])
def test_a_stream_with_the_headers_of_two_requests_leaves_nothing_behind(
    watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarmx.adapters.envoy.seen.FOLLOWS_S", 0.05)

    def headers(decision: str = "") -> Any:
        said = [pb.HeaderValue(key="x-swarmx-decision", raw_value=decision.encode())]
        return pb.ProcessingRequest(
            request_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=said), end_of_stream=True)
        )

    async def run() -> None:
        pool = Pool(Lanes("push"), asyncio.get_running_loop().time, PickLimits(), Counters())
        pool.set_states([ReplicaState("10.0.0.1:80", "m")])
        streams = [Stream(pool, StreamRules("m", watched=watched), Random(0)) for _ in range(2)]
        watcher = Watcher(pool)
        for stream in streams:
            await stream.on(headers())
            await stream.on(headers())
            assert stream.ride is not None
            await watcher.on(headers(stream.ride.call.id))
        for closed in (*streams, watcher):
            closed.close()
        await until(lambda: not pool.rides and not pool.lanes.cluster.flights)

    asyncio.run(run())


def test_a_stream_that_talks_nonsense_is_ended_and_the_server_goes_on() -> None:
    async def run() -> None:
        server, port = await _server([True])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            process = channel.stream_stream(f"/{PROCESS[0]}/{PROCESS[1]}", None, pb.ProcessingResponse.FromString)
            broken = process()
            await broken.write(b"\xff\xff\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError):
                assert await broken.read() is grpc.aio.EOF
                await broken.code()
                raise grpc.aio.AioRpcError(await broken.code(), None, None)
            good = process()
            request = pb.ProcessingRequest(request_headers=pb.HttpHeaders(end_of_stream=True))
            await good.write(request.SerializeToString())
            answer = await good.read()
            header = answer.request_headers.response.header_mutation.set_headers[0].header
            assert header.raw_value == b"10.0.0.1:80"
            assert answer.dynamic_metadata["envoy.lb"][header.key] == "10.0.0.1:80"
            await good.done_writing()
        await server.drain(0)

    asyncio.run(run())

"""The gRPC server as grpc's own client, and a peer that talks nonsense, find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.adapters.envoy import rpc as rpc_module
from swarmx.adapters.envoy.http2 import GrpcServer, Method
from swarmx.adapters.envoy.rpc import NOT_FOUND, Rpc, RpcError


async def echo(rpc: Rpc) -> None:
    while (message := await rpc.read()) is not None:
        await rpc.write(message)


@asynccontextmanager
async def serving(methods: Mapping[str, Method]) -> AsyncIterator[tuple[GrpcServer, int]]:
    server = GrpcServer({f"/s/{name}": method for name, method in methods.items()})
    port = await server.start("127.0.0.1:0")
    try:
        yield server, port
    finally:
        await server.drain(0)


@asynccontextmanager
async def called(methods: Mapping[str, Method], **options: Any) -> AsyncIterator[tuple[GrpcServer, Any]]:
    """The server, and what begins a call of one of its methods."""
    no_limit = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    async with (
        serving(methods) as (server, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=no_limit, **options) as channel,
    ):
        yield server, lambda name: channel.stream_stream(f"/s/{name}", None, None)()


async def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()


@pytest.mark.parametrize("size", [0, 1, 16_384, 70_000, 3_000_000])
def test_messages_of_any_size_come_back_in_order_from_calls_side_by_side(size: int) -> None:
    async def one(call: Any, number: int) -> None:
        sent = [bytes([number, i]) + b"x" * size for i in range(3)]
        got = []
        for message in sent:
            await call.write(message)
            got.append(await call.read())
        await call.done_writing()
        assert got == sent and await call.read() is grpc.aio.EOF and await call.code() == grpc.StatusCode.OK

    async def run() -> None:
        async with called({"echo": echo}) as (_, begin):
            await asyncio.gather(*(one(begin("echo"), number) for number in range(8)))

    asyncio.run(run())


def test_a_peer_that_does_not_read_holds_up_the_writer_and_nobody_else() -> None:
    written = 0

    async def pours(rpc: Rpc) -> None:
        nonlocal written
        for _ in range(400):
            await rpc.write(b"x" * 64_000)
            written += 1

    async def run() -> None:
        async with called({"pours": pours, "echo": echo}) as (_, begin):
            slow, quick = begin("pours"), begin("echo")
            await slow.write(b"")
            await asyncio.sleep(0.3)
            assert written < 400  # 26 MB do not pile up here
            await quick.write(b"hi")
            assert await asyncio.wait_for(quick.read(), 5) == b"hi"
            assert sum([1 async for _ in slow]) == 400
            quick.cancel()

    asyncio.run(run())


def test_a_method_that_does_not_read_holds_up_the_sender_and_nobody_else() -> None:
    async def deaf(rpc: Rpc) -> None:
        await asyncio.sleep(60)

    async def run() -> None:
        async with called({"deaf": deaf, "echo": echo}) as (_, begin):
            pushed, quick = begin("deaf"), begin("echo")

            async def push() -> None:
                for _ in range(1000):
                    await pushed.write(b"x" * 64_000)

            pushing = asyncio.create_task(push())
            await asyncio.sleep(0.3)
            assert not pushing.done()
            await quick.write(b"hi")
            assert await asyncio.wait_for(quick.read(), 5) == b"hi"
            pushing.cancel()
            pushed.cancel()
            quick.cancel()

    asyncio.run(run())


def test_a_call_that_its_client_gives_up_is_cancelled_where_it_waits() -> None:
    ended: list[str] = []

    async def waits(rpc: Rpc) -> None:
        try:
            await rpc.read()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def run() -> None:
        async with called({"waits": waits}) as (_, begin):
            call = begin("waits")
            await call.write(b"1")
            await asyncio.sleep(0.1)
            call.cancel()
            async with asyncio.timeout(5):
                while not ended:
                    await asyncio.sleep(0.01)

    asyncio.run(run())


def test_every_failure_has_its_status_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(rpc: Rpc) -> None:
        raise ZeroDivisionError(f"a {'s'}ecret of the request")

    async def refuses(rpc: Rpc) -> None:
        raise RpcError(NOT_FOUND, "nothing: 100 % süß\n")

    async def run() -> None:
        methods = {"fails": fails, "refuses": refuses, "echo": echo}
        async with called(methods, compression=grpc.Compression.NoCompression) as (_, begin):
            assert await code_of(begin("refuses")) == (grpc.StatusCode.NOT_FOUND, "nothing: 100 % süß\n")
            assert await code_of(begin("fails")) == (grpc.StatusCode.INTERNAL, "")
            assert (await code_of(begin("nothing")))[0] == grpc.StatusCode.UNIMPLEMENTED
            call = begin("echo")
            await call.write(b"hi")
            assert await call.read() == b"hi"
            call.cancel()
        async with called(methods, compression=grpc.Compression.Gzip) as (_, begin):
            call = begin("echo")
            await call.write(b"hi" * 1000)
            assert (await code_of(call))[0] == grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(run())
    assert "ZeroDivisionError" in caplog.text and "in fails" in caplog.text and "secret" not in caplog.text


def test_a_message_that_is_too_long_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_module, "LONGEST_BYTES", 1000)

    async def run() -> None:
        async with called({"echo": echo}) as (_, begin):
            call = begin("echo")
            await call.write(b"x" * 2000)
            assert (await code_of(call))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(run())


def test_a_drain_lets_the_calls_in_hand_end_and_takes_no_new_connection() -> None:
    async def run() -> None:
        async with called({"echo": echo}) as (server, begin):
            call = begin("echo")
            await call.write(b"1")
            assert await call.read() == b"1"
            draining = asyncio.create_task(server.drain(10))
            await asyncio.sleep(0.1)
            late = begin("echo")
            assert (await code_of(late))[0] == grpc.StatusCode.UNAVAILABLE
            await call.write(b"2")
            assert await call.read() == b"2"
            await call.done_writing()
            assert await call.code() == grpc.StatusCode.OK
            await asyncio.wait_for(draining, 5)

    asyncio.run(run())


def test_a_drain_cuts_what_does_not_end_in_time() -> None:
    async def run() -> None:
        async with called({"echo": echo}) as (server, begin):
            call = begin("echo")
            await call.write(b"1")
            assert await call.read() == b"1"
            await asyncio.wait_for(server.drain(0.1), 5)
            assert (await code_of(call))[0] == grpc.StatusCode.UNAVAILABLE

    asyncio.run(run())


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@settings(deadline=None, max_examples=40)
@given(st.booleans(), st.lists(st.binary(max_size=200), max_size=4))
def test_a_peer_that_talks_nonsense_is_hung_up_on_and_others_are_served(preface: bool, pieces: list[bytes]) -> None:
    async def run() -> None:
        async with serving({"echo": echo}) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(PREFACE if preface else b"")
            for piece in pieces:
                writer.write(piece)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = channel.stream_stream("/s/echo", None, None)()
                await call.write(b"hi")
                assert await call.read() == b"hi"
                call.cancel()

    asyncio.run(run())

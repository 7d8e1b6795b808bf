"""A gRPC server on the event loop: HTTP/2 by h2, calls as `rpc` has them.

grpc.aio hands every message through three threads: 0.7 ms of CPU for the messages of one pick, and a millisecond of
waiting on a busy machine. Read and answered in the loop's own callbacks they take 0.25 ms.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import h2.events as event_kinds
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from swarmx.adapters.envoy.rpc import INTERNAL, OK, UNIMPLEMENTED, Rpc, RpcError

log = logging.getLogger(__name__)
MOST_CALLS = 100_000  # at a time, on one connection
WINDOW_BYTES = 2**18  # that a peer may send ahead on one call
LARGEST_WINDOW = 2**31 - 1  # of a connection: a call that waits must not hold up the others
LAST_S = 1.0  # for the last words at a drain's end
SILENT_S = 30  # after which TCP asks whether the peer's machine still lives
Method = Callable[[Rpc], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One peer. methods : by path; open : where it is listed while it lasts"""

    def __init__(self, methods: Mapping[str, Method], open_: set[Connection]) -> None:
        self.methods, self.open = methods, open_
        options = H2Configuration(
            client_side=False, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = H2Connection(options)
        values = {SettingCodes.MAX_CONCURRENT_STREAMS: MOST_CALLS, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
        self.h2.local_settings = Settings(client=False, initial_values=values)
        self.rpcs: dict[int, Rpc] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._flushing = False

    # ---- asyncio's side ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.open.add(self)
        if (link := transport.get_extra_info("socket")) is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(LARGEST_WINDOW - self.h2.inbound_flow_control_window)
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except ProtocolError as problem:  # h2 has prepared the GOAWAY that says so
            log.debug("a connection is closed: %s", problem)
            self._send()
            self._transport.close()
            return
        for event in events:
            self._on(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)
        for rpc in self.rpcs.values():
            rpc.drop()
        self.rpcs.clear()

    # ---- for calls and the server ----

    def flush(self) -> None:
        """Send what there is once this turn of the loop is over."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._send)

    def say_goodbye(self) -> None:
        """Ask the peer to begin no more calls here; those on their way are still served."""
        if not self._transport.is_closing():
            self._send()
            self._transport.write(GoAwayFrame(0, last_stream_id=2**31 - 1).serialize())

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Hang up, whatever is unsent."""
        self._transport.abort()

    # ---- inside ----

    def _send(self) -> None:
        self._flushing = False
        if (data := self.h2.data_to_send()) and not self._transport.is_closing():
            self._transport.write(data)

    def _on(self, event: event_kinds.Event) -> None:
        match event:
            case event_kinds.RequestReceived():
                self._begin(event)
            case event_kinds.DataReceived(stream_id=number) if (rpc := self.rpcs.get(number)) is not None:
                rpc.take(event.data, event.flow_controlled_length)
            case event_kinds.DataReceived():  # of a call that is over
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case event_kinds.StreamEnded(stream_id=number) if (rpc := self.rpcs.get(number)) is not None:
                rpc.no_more()
            case event_kinds.StreamReset() if (rpc := self.rpcs.pop(event.stream_id, None)) is not None:
                rpc.drop()
            case event_kinds.WindowUpdated(stream_id=number) if number:
                if (rpc := self.rpcs.get(number)) is not None:
                    rpc.pump()
            case event_kinds.WindowUpdated() | event_kinds.RemoteSettingsChanged():
                for rpc in list(self.rpcs.values()):
                    rpc.pump()
            case event_kinds.ConnectionTerminated():
                self._transport.close()

    def _begin(self, event: event_kinds.RequestReceived) -> None:
        path = next((value for name, value in event.headers if name == b":path"), b"")
        rpc = self.rpcs[event.stream_id] = Rpc(self, event.stream_id, path.decode("ascii", "replace"))
        rpc.task = self._loop.create_task(self._serve(rpc))

    async def _serve(self, rpc: Rpc) -> None:
        status, message = OK, ""
        try:
            method = self.methods.get(rpc.path)
            if method is None:
                raise RpcError(UNIMPLEMENTED, f"unknown method {rpc.path[:200]}")
            await method(rpc)
        except RpcError as problem:
            status, message = problem.status, str(problem)
        except Exception as problem:  # what goes wrong in one call must not end the others
            where = "".join(traceback.format_tb(problem.__traceback__))  # its message may hold parts of a request
            log.error("a call of %s has failed with %s:\n%s", rpc.path, type(problem).__name__, where)
            status = INTERNAL
        if self.rpcs.pop(rpc.stream_id, None) is not None:
            rpc.finish(status, message)


class GrpcServer:
    """methods : path as in `/package.Service/Method` -> what serves it"""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self.methods = methods
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, address: str, tls: ssl.SSLContext | None = None) -> int:
        """Listen on host:port; returns the port. Raises OSError when it is taken."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        make = lambda: Connection(self.methods, self._open)  # noqa: E731
        self._server = await loop.create_server(make, host.strip("[]"), int(port), ssl=tls, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    async def drain(self, grace_s: float) -> None:
        """Take no new connections, ask for no new calls, let those in hand end; after grace_s cut what is left."""
        if self._server is not None:
            self._server.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        for line in self._open:
            line.say_goodbye()
        while (tasks := self._tasks()) and (left := until - loop.time()) > 0:
            await asyncio.wait(tasks, timeout=left)
        for line in list(self._open):
            line.close()
        for task in (tasks := self._tasks()):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        until = loop.time() + LAST_S
        while self._open and loop.time() < until:  # what is written may still be on its way
            await asyncio.sleep(0.01)
        for line in list(self._open):
            line.abort()
        await asyncio.sleep(0)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [rpc.task for line in self._open for rpc in line.rpcs.values() if rpc.task is not None]

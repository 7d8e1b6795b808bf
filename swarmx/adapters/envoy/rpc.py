"""One gRPC call: its messages in and out, within the windows of HTTP/2, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol
from urllib.parse import quote

from h2.connection import H2Connection
from h2.errors import ErrorCodes

OK, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 5, 8, 12, 13  # gRPC's status codes
PREFIX_BYTES = 5  # a flag and the length before every message
LONGEST_BYTES = 64 * 2**20
AHEAD = 4  # messages that may wait unread before the peer is held up
_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]


class RpcError(Exception):
    """Ends a call with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Line(Protocol):
    """What a call needs of its connection. flush : soon send what h2 has ready"""

    h2: H2Connection

    def flush(self) -> None: ...


class Rpc:
    """A call as its method sees it: `read` until None, `write` at any time. task : the method at work"""

    def __init__(self, line: Line, stream_id: int, path: str) -> None:
        self.line, self.stream_id, self.path = line, stream_id, path
        self.task: asyncio.Task[None] | None = None
        self._inbox: deque[bytes] = deque()
        self._part = bytearray()  # of the message that is coming in
        self._owed = 0  # bytes received whose place in the window the peer has not got back
        self._all_read = self._gone = self._began = False
        self._problem: RpcError | None = None
        self._outbox = bytearray()
        self._arrived: asyncio.Future[None] | None = None
        self._sent: asyncio.Future[None] | None = None

    # ---- for the method ----

    async def read(self) -> bytes | None:
        """The next message, None after the last. Raises RpcError for what is no message."""
        while not self._inbox:
            if self._problem is not None:
                raise self._problem
            if self._all_read:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        message = self._inbox.popleft()
        self._pay_back()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message; waits while the peer takes no more. Without effect once the peer is gone."""
        if self._gone:
            return
        if not self._began:
            self._began = True
            self.line.h2.send_headers(self.stream_id, _HEAD)
        self._outbox += b"\0" + len(message).to_bytes(4, "big") + message
        self.pump()
        if self._outbox:
            self._sent = asyncio.get_running_loop().create_future()
            await self._sent

    # ---- for the connection ----

    def take(self, data: bytes, window: int) -> None:
        """Data have come, which took so much of the window."""
        self._owed += window
        self._part += data
        while len(self._part) >= PREFIX_BYTES and self._problem is None:
            end = PREFIX_BYTES + int.from_bytes(self._part[1:PREFIX_BYTES], "big")
            if self._part[0]:
                self._problem = RpcError(UNIMPLEMENTED, "compressed messages are not understood")
            elif end > LONGEST_BYTES:
                self._problem = RpcError(RESOURCE_EXHAUSTED, f"a message is longer than {LONGEST_BYTES} bytes")
            elif end > len(self._part):
                break
            else:
                self._inbox.append(bytes(self._part[PREFIX_BYTES:end]))
                del self._part[:end]
        self._pay_back()
        _wake(self._arrived)

    def no_more(self) -> None:
        """The peer has sent all."""
        self._all_read = True
        if self._part and self._problem is None:
            self._problem = RpcError(INTERNAL, "the last message is cut off")
        _wake(self._arrived)

    def pump(self) -> None:
        """Hand to h2 what the peer's windows let through."""
        h2, out = self.line.h2, self._outbox
        while out and not self._gone:
            room = min(len(out), h2.local_flow_control_window(self.stream_id), h2.max_outbound_frame_size)
            if room <= 0:
                break
            h2.send_data(self.stream_id, bytes(out[:room]))
            del out[:room]
        if not out:
            _wake(self._sent)
        self.line.flush()

    def drop(self) -> None:
        """The peer is gone; the method is cancelled where it waits."""
        self._gone = True
        if self.task is not None:
            self.task.cancel()

    def finish(self, status: int, message: str = "") -> None:
        """Send the trailers."""
        if self._gone:
            return
        self._gone = True
        said = [(b"grpc-status", str(status).encode()), (b"grpc-message", quote(message, safe=" ,.:'()").encode())]
        trailers = said if message else said[:1]
        h2 = self.line.h2
        h2.send_headers(self.stream_id, trailers if self._began else [*_HEAD, *trailers], end_stream=True)
        if not self._all_read:
            h2.reset_stream(self.stream_id, ErrorCodes.NO_ERROR)
        self.line.flush()

    def _pay_back(self) -> None:
        if self._owed and len(self._inbox) <= AHEAD and not self._gone:
            self.line.h2.acknowledge_received_data(self._owed, self.stream_id)
            self._owed = 0
            self.line.flush()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)

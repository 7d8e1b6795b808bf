"""What is seen of answers: status, first token, tokens and usage, read while the chunks pass on unchanged.

Two kinds of streams show them: the one that asked for the endpoint, through which the answer then passes, or one that
only watches (Envoy's observability mode), for which the answer does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from swarmx.adapters.envoy.pool import Pool
from swarmx.adapters.envoy.replies import DECISION
from swarmx.adapters.envoy.ride import Ride
from swarmx.types import Status

SERVED_NAMESPACE, SERVED = "envoy.lb", "x-gateway-destination-endpoint-served"
UPSTREAM = "upstream.address"
FOLLOWS_S: Final = 5.0  # a watching stream comes within milliseconds of the answer that lets the request go on
NO_WATCHER = (
    "no watching stream followed a request (proxy.answers is 'watched'): is the second ext_proc filter there, after "
    "the first? Ends of calls are not seen without it; `swarmx endpoint-picker CONFIG --envoy` prints both"
)


class Seen:
    """The answer to one call, as it is seen."""

    def __init__(self, pool: Pool, ride: Ride, shows_bodies: bool) -> None:
        self.pool, self.ride, self.shows_bodies = pool, ride, shows_bodies
        self.complete = False

    def headers(self, message: Any) -> None:
        ride, headers = self.ride, message.response_headers
        ride.answer.begin(*_status_and_type(headers.headers))
        if (address := served_of(message)) is not None:
            self.pool.served_by(ride, address)
        if headers.end_of_stream:
            self.end()
        elif ride.answer.ok and ride.answer.is_stream and not self.shows_bodies:
            self.pool.first_token(ride)  # engines send the headers of a stream with its first token

    def body(self, body: Any) -> None:
        if self.ride.over:
            return
        if self.ride.answer.feed(body.body):
            self.pool.first_token(self.ride)
            self.pool.progress(self.ride)
        if body.end_of_stream:
            self.end()

    def end(self) -> None:
        """Nothing more will come."""
        self.complete = True
        self.ride.answer.end()
        self.pool.end(self.ride, self._status())

    def closed(self) -> None:
        """The stream that shows it is over. Without a complete answer the client is gone, or nobody shows us bodies.

        A client that leaves on reading the last event of its stream was served.
        """
        if not self.ride.over:
            to_its_end = self.complete or self.ride.answer.done or not self.shows_bodies
            self.pool.end(self.ride, self._status() if to_its_end else "cancelled")

    def _status(self) -> Status:
        return "ok" if self.ride.answer.ok else "error"


class Watcher:
    """A stream that shows an answer and waits for nothing; the request's headers say whose it is."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.seen: Seen | None = None

    async def on(self, message: Any) -> Sequence[bytes]:
        """Never anything to send back."""
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            ride = self.pool.rides.get(_decision(message.request_headers.headers))
            if ride is not None and not ride.watched and self.seen is None:
                ride.watched = True
                self.seen = Seen(self.pool, ride, shows_bodies=True)
        elif self.seen is None:
            return ()
        elif kind == "response_headers":
            self.seen.headers(message)
        elif kind == "response_body":
            self.seen.body(message.response_body)
        elif kind == "response_trailers":
            self.seen.end()
        return ()

    def close(self) -> None:
        if self.seen is not None:
            self.seen.closed()


def leave_to_watcher(pool: Pool, ride: Ride) -> None:
    """Its end is for a watching stream to see; when none comes, the call is given up."""

    def check() -> None:
        if not ride.watched and not ride.over:
            pool.warn_once(NO_WATCHER)
            pool.end(ride, "cancelled")

    if not ride.watched and not ride.over:
        asyncio.get_running_loop().call_later(FOLLOWS_S, check)


def _decision(header_map: Any) -> str:
    found = next((header for header in header_map.headers if header.key == DECISION), None)
    return "" if found is None else found.value or found.raw_value.decode("utf-8", "replace")


def served_of(message: Any) -> str | None:
    """The endpoint that served the request, where the proxy says so: in metadata, or as a response attribute."""
    spaces = message.metadata_context.filter_metadata
    if SERVED_NAMESPACE in spaces and SERVED in spaces[SERVED_NAMESPACE].fields:
        return str(spaces[SERVED_NAMESPACE].fields[SERVED].string_value)
    for attributes in message.attributes.values():
        if UPSTREAM in attributes.fields:
            return str(attributes.fields[UPSTREAM].string_value)
    return None


def _status_and_type(header_map: Any) -> tuple[int, str]:
    status, content_type = 200, ""
    for header in header_map.headers:
        if header.key == ":status":
            text = header.value or header.raw_value.decode("ascii", "replace")
            status = int(text) if text.isdigit() else 500
        elif header.key == "content-type":
            content_type = header.value or header.raw_value.decode("utf-8", "replace")
    return status, content_type

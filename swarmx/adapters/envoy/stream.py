"""One external-processing stream, that is one HTTP request, from its headers to the end of its answer.

Request: the headers' answer is withheld until the body is complete (full duplex), or the body's is (buffered); then the
pool picks. The answer is seen as it passes (`seen`), here or in a stream that only watches. A message is answered with
zero or more messages; which ones is decided here, how they are carried is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from swarmx.adapters.envoy import replies
from swarmx.adapters.envoy.body import read_body
from swarmx.adapters.envoy.headers import identified, wanted
from swarmx.adapters.envoy.lanes import Allowed
from swarmx.adapters.envoy.messages import BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX, NONE
from swarmx.adapters.envoy.pool import Pool
from swarmx.adapters.envoy.ride import Refused, Ride
from swarmx.adapters.envoy.seen import Seen, leave_to_watcher
from swarmx.adapters.prompts import prefix_blocks
from swarmx.types import Call

SUBSET_NAMESPACE, SUBSET = "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset"
NO_ENDS = (
    "the proxy shows no bodies of answers (response_body_mode NONE), so ends of calls cannot be seen and no call is "
    "held back; set FULL_DUPLEX_STREAMED for answers too, or choose a preset that binds at once, such as push"
)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """model : the pool's, where a request names none; objectives : name -> priority

    max_body_bytes : a longer request is refused with 413
    max_bodies_bytes : of all requests whose bodies are being read or held; one more is refused with 503
    share : of the requests whose endpoint is really set; the others are decided and recorded alone
    receipts : put `x-swarmx-decision` on answers
    tracks_prefixes : remember which endpoint has seen which beginning of a prompt, as engines cache them
    watched : ends of answers are shown by streams that only watch
    hold_s, buffered_hold_s : longest time that an answer is withheld, in full duplex and for buffered bodies; the
        latter must stay below the proxy's message_timeout
    """

    model: str
    objectives: dict[str, int] = field(default_factory=dict)
    max_body_bytes: int = 32 * 2**20
    max_bodies_bytes: int = 256 * 2**20
    share: float = 1.0
    receipts: bool = True
    hold_s: float = 30.0
    buffered_hold_s: float = 0.12
    tracks_prefixes: bool = True
    watched: bool = False


class Stream:
    """Feed it the messages of one stream in order; call `close` when the stream ends, however it does."""

    def __init__(self, pool: Pool, rules: StreamRules, rng: Random) -> None:
        self.pool, self.rules, self.rng = pool, rules, rng
        self.ride: Ride | None = None
        self.seen: Seen | None = None
        self.body_mode, self.response_mode = BUFFERED, NONE
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._allowed: Allowed = None
        self._picked = False

    async def on(self, message: Any) -> Sequence[bytes]:
        """The messages to send back for this one."""
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            return await self._request_headers(message)
        if kind == "request_body":
            return await self._request_body(message.request_body)
        if kind == "request_trailers":
            return await self._request_trailers()
        if kind == "response_headers":
            return self._response_headers(message)
        if kind == "response_body":
            return self._response_body(message.response_body)
        if kind == "response_trailers":
            if self.seen is not None:
                self.seen.end()
            return (replies.GO_ON_RESPONSE_TRAILERS,)
        return ()

    def close(self) -> None:
        """The stream is over, and with it the call, unless others watch its answer."""
        self._take_body()
        if self.seen is not None and not self.rules.watched:
            self.seen.closed()
        elif self.ride is not None:
            leave_to_watcher(self.pool, self.ride)

    # ---- request ----

    async def _request_headers(self, message: Any) -> Sequence[bytes]:
        if self._picked:  # a stream is one request
            return (replies.GO_ON_REQUEST_HEADERS,)
        self._headers = wanted(message.request_headers.headers)
        self._allowed = subset_of(message)
        if message.HasField("protocol_config"):
            self.body_mode = message.protocol_config.request_body_mode
            self.response_mode = message.protocol_config.response_body_mode
        if message.request_headers.end_of_stream or self.body_mode not in (BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX):
            return (await self._pick(in_body=False),)
        return () if self.body_mode == FULL_DUPLEX else (replies.GO_ON_REQUEST_HEADERS,)

    async def _request_body(self, body: Any) -> Sequence[bytes]:
        if self._picked:  # a mode in which bodies follow the decision
            return (replies.GO_ON_REQUEST_BODY,)
        self._body += body.body
        self.pool.body_bytes += len(body.body)
        if (refusal := self._too_much()) is not None:
            self._picked = True
            return (self._refuse(refusal),)
        if self.body_mode != FULL_DUPLEX:
            return (await self._pick(in_body=True),)
        return await self._give_back(last=True) if body.end_of_stream else ()

    def _too_much(self) -> Refused | None:
        rules = self.rules
        if len(self._body) > rules.max_body_bytes:
            return Refused(413, f"the request is longer than {rules.max_body_bytes} bytes")
        if self.pool.body_bytes > rules.max_bodies_bytes:
            return Refused(503, "too many long requests at a time", 1.0)
        return None

    def _take_body(self) -> bytes:
        """What has been read of the body; it no longer counts."""
        body, self._body = bytes(self._body), bytearray()
        self.pool.body_bytes -= len(body)
        return body

    async def _request_trailers(self) -> Sequence[bytes]:
        if self._picked:
            return (replies.GO_ON_REQUEST_TRAILERS,)
        return (*await self._give_back(last=False), replies.GO_ON_REQUEST_TRAILERS)

    async def _give_back(self, last: bool) -> Sequence[bytes]:
        answer = await self._pick(in_body=False)
        if self.ride is None:
            return (answer,)
        return (answer, *replies.body_again(self._take_body(), last=last))

    async def _pick(self, in_body: bool) -> bytes:
        self._picked = True
        began = self.pool.clock()
        raw = read_body(bytes(self._body))
        if self.body_mode != FULL_DUPLEX:
            self._take_body()
        call = Call(
            "", raw.model or self.rules.model, began, prompt=raw.prompt,
            prompt_tokens=self.pool.tokens_of(raw.chars), max_tokens=raw.max_tokens,
            prefix_blocks=prefix_blocks(raw.prompt) if self.rules.tracks_prefixes else (), streamed=raw.stream,
        )  # fmt: skip
        try:
            ride = await self.pool.pick(
                identified(call, self._headers, self.rules.objectives), self._allowed, self._may_hold_s()
            )
        except Refused as refusal:
            return self._refuse(refusal)
        except asyncio.CancelledError:
            self.pool.counters.add("closed_while_held")
            raise
        self.ride, self.seen = ride, Seen(self.pool, ride, self.response_mode != NONE)
        self.pool.counters.add("picks")
        self.pool.counters.pick_s.observe(self.pool.clock() - began)
        acts = self.rules.share >= 1 or self.rng.random() < self.rules.share
        named = (ride.address, *ride.fallbacks) if acts else ()
        return replies.destination(named, in_body, ride.call.id if self.rules.watched else None)

    def _may_hold_s(self) -> float:
        """How long the answer may be withheld. Holding is of use only where ends of answers are seen to free a slot.

        Envoy's message_timeout runs while it waits for the answer to a buffered body, not in full duplex (Envoy 1.40).
        In full duplex without answers' bodies it closes the stream long before the answer has ended.
        """
        if self.body_mode != FULL_DUPLEX:
            return self.rules.buffered_hold_s
        if self.response_mode != NONE or self.rules.watched:
            return self.rules.hold_s
        if self.pool.lanes.holds:
            self.pool.warn_once(NO_ENDS)
        return 0.0

    def _refuse(self, refusal: Refused) -> bytes:
        self._take_body()
        self.pool.counters.add("refusals", str(refusal.status))
        return replies.refused(refusal)

    # ---- answer ----

    def _response_headers(self, message: Any) -> Sequence[bytes]:
        if self.seen is None:
            return (replies.GO_ON_RESPONSE_HEADERS,)
        self.seen.headers(message)
        receipt = self.seen.ride.call.id
        return (replies.decided(receipt) if self.rules.receipts else replies.GO_ON_RESPONSE_HEADERS,)

    def _response_body(self, body: Any) -> Sequence[bytes]:
        if self.seen is not None:
            self.seen.body(body)
        if self.response_mode == FULL_DUPLEX:
            return tuple(replies.body_again(body.body, response=True, last=body.end_of_stream))
        return (replies.GO_ON_RESPONSE_BODY,)


def subset_of(message: Any) -> Allowed:
    """Endpoints that the proxy restricts this request to; None without a hint."""
    spaces = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in spaces or SUBSET not in spaces[SUBSET_NAMESPACE].fields:
        return None
    hint = spaces[SUBSET_NAMESPACE].fields[SUBSET]
    if hint.WhichOneof("kind") == "string_value":  # some proxies write a comma list
        return frozenset(part.strip() for part in hint.string_value.split(",") if part.strip())
    return frozenset(value.string_value for value in hint.list_value.values)

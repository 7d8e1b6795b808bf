"""Carries one call to its replica and the answer back, as often as it takes until something has been streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

from swarmx.adapters.gateway.asked import Asked, encode
from swarmx.adapters.gateway.blame import attempt_answered, attempt_failed
from swarmx.adapters.gateway.errors import ClientGone, Failed, Refused
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.replica import Replica
from swarmx.adapters.gateway.resume import can_resume, resumed
from swarmx.adapters.gateway.scan import StreamScan, read_answer
from swarmx.adapters.gateway.sse import EventTooLong
from swarmx.adapters.gateway.ticket import Ticket
from swarmx.types import PRIORITIES

PROGRESS_TOKENS = 16  # the scheduler hears of a stream's progress in steps of about so many tokens
RESCHEDULE_S = 1.0  # a running stream's time limit is moved no more often than this
DECISION = "x-swarmx-decision"
CLASS_STEP = 10_000_000_000  # apart enough that a class is never reached by the workflow's arrival time within it


class Exchange:
    """One call from its start to its end.

    deadline : on the event loop's clock; resume : go on elsewhere when a stream breaks off
    """

    def __init__(
        self,
        pool: Pool,
        ticket: Ticket,
        asked: Asked,
        request: web.Request,
        session: aiohttp.ClientSession,
        headers: Mapping[str, str],
        deadline: float,
        resume: bool,
    ) -> None:
        self.pool = pool
        self.ticket = ticket
        self.asked = asked
        self.request = request
        self.session = session
        self.headers = headers
        self.deadline = deadline
        self.resume = resume and can_resume(asked)
        self.response: web.StreamResponse | None = None
        self.scan: StreamScan | None = None
        self.text = ""
        self.resumed = 0
        self.claimed = False
        self.rival: Exchange | None = None  # another copy of the call; whoever has something first goes on alone
        self.task: asyncio.Task[web.StreamResponse] | None = None
        self._told = 0.0
        self._limit_s = 0.0
        self._sending = False  # waits for the client to read

    async def run(self) -> web.StreamResponse:
        """The response, sent already where it was streamed. Raises Refused (nothing was sent) or ClientGone."""
        try:
            return await self._tries()
        except Refused as refusal:
            if not self.ticket.over:
                self.pool.finish(self.ticket, "timeout" if refusal.status == 504 else "error")
            if self.response is None:
                raise
            await self._send(refusal.event())
            return await self._end()
        finally:
            if not self.ticket.over:
                self.pool.finish(self.ticket, "cancelled")

    def _claim(self) -> None:
        """This copy has something for the client: the other one ends."""
        if not self.claimed and self.rival is not None and self.rival.task is not None:
            self.rival.task.cancel()
        self.claimed = True

    async def _tries(self) -> web.StreamResponse:
        while True:
            bound = self.ticket.bound
            replica = await self._bound()
            if self.ticket.bound is not bound:  # taken off before it was sent
                continue
            try:
                return await self._attempt(replica)
            except Failed as failure:
                if (ended := await self._after(failure, replica, self.ticket.bound is not bound)) is not None:
                    return ended

    async def _bound(self) -> Replica:
        """The replica that the call is to run on, once the scheduler has chosen it."""
        bound = self.ticket.bound
        if bound.done():  # a place was free when the call came
            return bound.result()
        try:
            async with asyncio.timeout_at(self.deadline):
                return await bound
        except TimeoutError:
            raise Refused(504, "the call waited out its time budget in the queue", "budget_exhausted") from None

    # ---- one attempt ----------------------------------------------------------------------------------------------

    async def _attempt(self, replica: Replica) -> web.StreamResponse:
        url = replica.settings.url + self.asked.path
        headers = {**self.headers, **replica.authorization()}
        try:
            async with asyncio.timeout_at(self.deadline) as self.ticket.timeout:
                payload = self._payload()
                async with self.session.post(url, data=payload, headers=headers, allow_redirects=False) as upstream:
                    return await self._answer(replica, upstream)
        except aiohttp.ClientConnectorError as problem:
            raise Failed("connect", str(problem)) from None
        except aiohttp.ConnectionTimeoutError as problem:
            raise Failed("connect", str(problem)) from None
        except (aiohttp.ClientError, EventTooLong, OSError) as problem:
            if self.ticket.over and self.response is not None:  # what comes after the end is nobody's loss
                return await self._end()
            if isinstance(problem, TimeoutError):
                raise self._timed_out() from None
            raise Failed("cut", f"{type(problem).__name__}: {problem}") from None
        finally:
            self.ticket.timeout = None

    def _timed_out(self) -> Failed | Refused | ClientGone:
        if (reason := self.ticket.interrupted) is not None:
            self.ticket.interrupted = None
            return Failed(reason, "the replica was given up")
        if asyncio.get_running_loop().time() < self.deadline:
            if self._sending and self.request.transport is not None:
                self.request.transport.abort()
                return ClientGone("the client read nothing for too long")
            return Failed("stall", "the replica sent nothing for too long")
        return Refused(504, "the call used up its time budget", "budget_exhausted")

    def _payload(self) -> bytes:
        extra: dict[str, Any] = {}
        settings, call = self.pool.settings, self.ticket.call
        if self._hides_usage:
            extra["stream_options"] = {**(self.asked.body.get("stream_options") or {}), "include_usage": True}
        if settings.engine_priority:
            extra["priority"] = PRIORITIES.index(call.priority) * CLASS_STEP + int(call.workflow_start_s)
        if self.text:
            extra.update(resumed(self.asked, self.text, self.ticket.output_tokens))
        return encode(self.asked, extra)

    @property
    def _hides_usage(self) -> bool:
        asked = self.asked
        counted = asked.path in ("/v1/chat/completions", "/v1/completions") and self.pool.settings.count_usage
        return asked.stream and counted and not asked.usage_wanted

    async def _answer(self, replica: Replica, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        if upstream.status == 200 and self.asked.stream and upstream.content_type == "text/event-stream":
            return await self._stream(replica, upstream)
        raw = await upstream.read()
        kept = ("Content-Type", "Retry-After")
        headers = {"Content-Type": "application/json"} | {k: upstream.headers[k] for k in kept if k in upstream.headers}
        answer = web.Response(status=upstream.status, body=raw, headers={**headers, **self._decision()})
        if upstream.status == 429:
            raise Failed("refused", "the replica is full", answer)
        if upstream.status >= 500:
            raise Failed("status", f"HTTP {upstream.status}", answer)
        self._claim()
        usage = read_answer(raw)
        ticket = self.ticket
        ticket.prompt_tokens, ticket.output_tokens = usage.prompt, usage.output or 0
        ticket.cached_tokens = usage.cached
        attempt_answered(self.pool, ticket, replica, upstream.status)
        self.pool.finish(ticket, "ok" if upstream.status < 400 else "error")
        return answer

    # ---- streaming ------------------------------------------------------------------------------------------------

    async def _stream(self, replica: Replica, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        head = self.scan.head if self.scan is not None and self.text else None
        scan = self.scan = StreamScan(self._hides_usage, self.resume, head)
        before = self.ticket.output_tokens
        self._told = 0.0
        async for piece in upstream.content.iter_any():
            shown = scan.take(piece)
            if scan.events and not self.ticket.over:
                self._observe(replica, scan, before)
            if scan.done and not self.ticket.over:  # before the client, who may leave when he has read it
                self._complete(replica, scan, before)
            if shown:
                await self._send(shown)
        if rest := scan.rest():
            await self._send(rest)
        if not self.ticket.over and not scan.finished:
            self._count(replica, scan, before)
            raise Failed("cut", "the stream ended without its end")
        if not self.ticket.over:
            self._complete(replica, scan, before)
        return await self._end()

    def _complete(self, replica: Replica, scan: StreamScan, before: int) -> None:
        """The answer is whole."""
        self._count(replica, scan, before)
        attempt_answered(self.pool, self.ticket, replica, 200)
        self.pool.finish(self.ticket, "ok")

    def _observe(self, replica: Replica, scan: StreamScan, before: int) -> None:
        ticket = self.ticket
        if ticket.first_token_s is None or self._told == 0.0:
            self.pool.first_token(ticket)
            self._told = 1.0
        tokens = scan.events * replica.tokens_per_event
        ticket.output_tokens = before + int(tokens)
        if tokens - self._told >= PROGRESS_TOKENS:
            self._told = tokens
            self.pool.progress(ticket, before + tokens)
        now = asyncio.get_running_loop().time()
        if ticket.timeout is not None and now - self._limit_s > RESCHEDULE_S and ticket.interrupted is None:
            self._limit_s = now
            ticket.timeout.reschedule(min(self.deadline, now + self.pool.upstream.stall_s + RESCHEDULE_S))

    def _count(self, replica: Replica, scan: StreamScan, before: int) -> None:
        """Exact tokens where the server told them; what an event holds on average is learned from that."""
        ticket, usage = self.ticket, scan.usage
        if usage.output is not None:
            if shown := sum(map(len, scan.text)):  # what was streamed before a failure had no usage: count its text
                before = round(len(self.text) * usage.output / shown)
            ticket.output_tokens = before + usage.output
            if scan.events > 1:
                replica.tokens_per_event += 0.1 * (usage.output / scan.events - replica.tokens_per_event)
        if usage.prompt is not None:
            ticket.prompt_tokens, ticket.cached_tokens = max(usage.prompt - before, 1), usage.cached

    async def _send(self, data: bytes) -> None:
        try:
            if self.response is None:
                headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **self._decision()}
                self._claim()
                self.response = web.StreamResponse(headers=headers)
                self.ticket.streamed = True
                await self.response.prepare(self.request)
            self._sending = True
            await self.response.write(data)
            self._sending = False
        except (ConnectionError, aiohttp.ClientError) as problem:
            raise ClientGone(str(problem)) from None

    async def _end(self) -> web.StreamResponse:
        assert self.response is not None
        try:
            await self.response.write_eof()
        except (ConnectionError, aiohttp.ClientError) as problem:
            raise ClientGone(str(problem)) from None
        return self.response

    def _decision(self) -> dict[str, str]:
        receipt = self.ticket.receipt
        return {} if receipt is None else {DECISION: receipt.id}

    # ---- after a failure ------------------------------------------------------------------------------------------

    async def _after(self, failure: Failed, replica: Replica, taken_off: bool) -> web.StreamResponse | None:
        """Queue the call again where that is possible and has not been done, else end it."""
        pool, ticket = self.pool, self.ticket
        attempt_failed(pool, ticket, replica, failure)
        if ticket.streamed:
            if not self._can_go_on():
                return await self._broken_off(failure)
            self.resumed += 1
        elif not taken_off and ticket.attempts >= pool.upstream.attempts:
            pool.finish(ticket, "error")
            if failure.answer is not None:
                return failure.answer
            raise Refused(502, f"no replica could answer after {ticket.attempts} attempts", failure.reason)
        if not taken_off:
            pool.put_back(ticket, failure.reason)
        return None

    def _can_go_on(self) -> bool:
        scan = self.scan
        if not self.resume or scan is None or self.resumed >= self.pool.upstream.resume:
            return False
        self.text += "".join(scan.text)
        return bool(self.text)

    async def _broken_off(self, failure: Failed) -> web.StreamResponse:
        """End a stream that the client has begun to read with an error that says so."""
        self.pool.finish(self.ticket, "error")
        refusal = Refused(502, f"the replica failed while it was answering ({failure.reason})", "stream_broken")
        await self._send(refusal.event())
        return await self._end()

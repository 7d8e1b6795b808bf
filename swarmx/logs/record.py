"""Record an execution log: send real calls to real servers and keep what a scheduler will want to know of each.

    with Journal(path) as journal:
        async with Recorder(endpoints, journal, model="m") as recorder:
            await open_loop(recorder, tasks, rate=0.5, seed=0)

A workflow is an async function that is given `call`; what a call waited for is what it names in `after`:

    async def plan_and_do(call):
        plan = await call(Ask("List the steps to bake bread."))
        steps = await asyncio.gather(*(call(Ask(f"Explain: {line}"), after=[plan]) for line in plan.text.splitlines()))
        await call(Ask("Sum it up."), after=steps)
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from swarmx.errors import BadInput
from swarmx.logs.record_journal import Journal
from swarmx.logs.record_stream import Endpoint, Reply, stream_chat
from swarmx.types import CallRecord, Messages, Priority

if TYPE_CHECKING:
    import aiohttp

Dispatch = Literal["random", "round_robin"]
FAILURES_IN_A_ROW = 20  # an endpoint that fails so often has died: stop rather than fill the log with errors


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to make. type : kind of task or step; group : the template that the prompt was made from."""

    prompt: str | Messages
    type: str | None = None
    group: str | None = None
    tenant: str = "default"
    priority: Priority = "normal"
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a workflow sees of a call that ended well."""

    call_id: str
    text: str
    finished_s: float
    output_tokens: int


class CallFailed(RuntimeError):
    """The call ended with an error; a workflow that does not catch it ends here, and the journal says so."""


Caller = Callable[..., Awaitable[Answer]]  # (ask: Ask, after: Sequence[Answer] = ()) -> Answer
Workflow = Callable[[Caller], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Task:
    """A workflow with its name, unique in the log and the same when the recording is resumed."""

    id: str
    run: Workflow


def transcript(prompt: str | Messages) -> str:
    """The prompt as one text: a lone user message is itself, several become lines `role: content`."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


@dataclass(slots=True)
class _Held:
    """A call that a server has now."""

    prompt_tokens: float
    output_tokens: int = 0

    def count(self) -> None:
        self.output_tokens += 1


@dataclass(slots=True)
class _Book:
    """What one endpoint holds; prompt tokens are estimated from characters, at the rate seen so far."""

    held: dict[str, _Held] = field(default_factory=dict)
    tokens_per_char: float = 0.25
    failures: int = 0

    def state(self, slots: int | None) -> tuple[int, int, int]:
        """(running, waiting, KV tokens), the first `slots` calls taken to be those that run."""
        run = list(self.held.values())[: slots or len(self.held)]
        return len(run), len(self.held) - len(run), round(sum(h.prompt_tokens + h.output_tokens for h in run))


@dataclass(frozen=True, slots=True)
class _Sent:
    """A call as it went out: to which endpoint, and what that held before."""

    call_id: str
    workflow_id: str
    born_s: float
    arrival_s: float
    endpoint: Endpoint
    running: int
    waiting: int
    kv_tokens: int


class Recorder:
    """Sends calls to endpoints and writes each to the journal.

    sampling : further fields of the request body, such as temperature; seed : draws the endpoints, and with a call's id
    the seed of its sampling (None: neither). identify : name each call, its workflow, parent and type in the body's
    `metadata`, as the gateway reads them. Times are seconds since the recording began, over all its resumptions.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        journal: Journal,
        model: str,
        *,
        dispatch: Dispatch = "random",
        sampling: dict[str, Any] | None = None,
        seed: int | None = 0,
        timeout_s: float = 600.0,
        api_key: str | None = None,
        identify: bool = False,
    ) -> None:
        self.endpoints = list(endpoints)
        self.journal = journal
        self.model = model
        self.dispatch = dispatch
        self.sampling = sampling or {}
        self.seed = seed
        self.timeout_s = timeout_s
        self.api_key = api_key
        self.identify = identify
        self.calls = self.output_tokens = 0
        self._rng = np.random.default_rng(seed)
        self._books = [_Book() for _ in endpoints]
        self._turn = 0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            import aiohttp
        except ImportError:
            raise BadInput("recording needs aiohttp: pip install 'swarmx-scheduler[train]'") from None
        self._started = time.monotonic() - (self.journal.last_s + 1.0 if self.journal.last_s else 0.0)
        timeout = aiohttp.ClientTimeout(total=self.timeout_s)
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        # a connection per call: servers close idle ones at the very moment when the next call goes out
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers)
        try:
            self.endpoints = [await self._reach(endpoint) for endpoint in self.endpoints]
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def clock(self) -> float:
        return time.monotonic() - self._started

    async def _reach(self, endpoint: Endpoint) -> Endpoint:
        """Check that it answers; take its slots from llama-server's /props where it has that page."""
        import aiohttp

        assert self._session is not None
        try:
            async with self._session.get(f"{endpoint.url}/v1/models") as response:
                if response.status != 200:
                    raise aiohttp.ClientError(f"HTTP {response.status}")
            async with self._session.get(f"{endpoint.url}/props") as response:
                slots = (await response.json()).get("total_slots") if response.status == 200 else None
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            raise BadInput(
                f"endpoint {endpoint.url} does not answer GET /v1/models ({problem}); "
                "start the server or correct --endpoint"
            ) from None
        return Endpoint(endpoint.url, endpoint.device, endpoint.weight, endpoint.slots or slots)

    def _choose(self) -> int:
        if self.dispatch == "round_robin":
            self._turn += 1
            return (self._turn - 1) % len(self.endpoints)
        weights = np.array([endpoint.weight for endpoint in self.endpoints])
        return int(self._rng.choice(len(weights), p=weights / weights.sum()))

    def _body(self, ask: Ask, call_id: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": ask.prompt}] if isinstance(ask.prompt, str) else list(ask.prompt)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= self.sampling
        if ask.max_tokens is not None:
            body["max_tokens"] = ask.max_tokens
        if self.seed is not None:
            body["seed"] = zlib.crc32(f"{self.seed}/{call_id}".encode())
        return body

    def _identity(self, ask: Ask, after: Sequence[Answer], call_id: str, workflow_id: str) -> dict[str, Any]:
        if not self.identify:
            return {}
        said = {"call_id": call_id, "workflow_id": workflow_id, "tenant": ask.tenant, "type": ask.type}
        if after:
            said["parent_id"] = max(after, key=lambda answer: answer.finished_s).call_id
        return {"metadata": {f"swarmx_{name}": value for name, value in said.items() if value is not None}}

    async def call(self, ask: Ask, after: Sequence[Answer], call_id: str, workflow_id: str, born_s: float) -> Answer:
        """One call, from its arrival to its row in the journal. Raises CallFailed; BadInput when a server has died."""
        assert self._session is not None
        chosen = self._choose()
        endpoint, book, text = self.endpoints[chosen], self._books[chosen], transcript(ask.prompt)
        sent = _Sent(call_id, workflow_id, born_s, self.clock(), endpoint, *book.state(endpoint.slots))
        held = book.held[call_id] = _Held(len(text) * book.tokens_per_char)
        body = self._body(ask, call_id) | self._identity(ask, after, call_id, workflow_id)
        try:
            reply = await stream_chat(self._session, endpoint.url, body, self.clock, held.count)
        finally:
            del book.held[call_id]
        self.journal.call(self._row(ask, text, after, sent, reply))
        return self._judge(reply, endpoint, book, call_id, len(text))

    def _row(self, ask: Ask, text: str, after: Sequence[Answer], sent: _Sent, reply: Reply) -> CallRecord:
        parents = tuple(answer.call_id for answer in sorted(after, key=lambda answer: answer.finished_s))
        return CallRecord(
            call_id=sent.call_id,
            model=self.model,
            arrival_s=sent.arrival_s,
            status=reply.status,
            workflow_id=sent.workflow_id,
            parent_id=parents[-1] if parents else None,
            waits_for=parents,
            workflow_arrival_s=sent.born_s,
            tenant=ask.tenant,
            priority=ask.priority,
            type=ask.type,
            prompt=text,
            prompt_group=ask.group,
            prompt_tokens=reply.prompt_tokens,
            max_tokens=ask.max_tokens,
            replica=sent.endpoint.replica,
            device=sent.endpoint.device,
            dispatched_s=sent.arrival_s,
            first_token_s=reply.first_token_s,
            finished_s=reply.finished_s,
            output_tokens=reply.output_tokens,
            cached_tokens=reply.cached_tokens,
            running_at_dispatch=sent.running,
            waiting_at_dispatch=sent.waiting,
            kv_tokens_at_dispatch=sent.kv_tokens,
            policy=self.dispatch,
        )

    def _judge(self, reply: Reply, endpoint: Endpoint, book: _Book, call_id: str, chars: int) -> Answer:
        if reply.status != "ok":
            book.failures += 1
            if book.failures >= FAILURES_IN_A_ROW:
                raise BadInput(
                    f"endpoint {endpoint.url} failed {book.failures} calls in a row, the last with {reply.error!r}"
                )
            raise CallFailed(reply.error)
        book.failures = 0
        if reply.prompt_tokens and chars:
            book.tokens_per_char += 0.05 * (reply.prompt_tokens / chars - book.tokens_per_char)
        self.calls += 1
        self.output_tokens += reply.output_tokens
        return Answer(call_id, reply.text, reply.finished_s, reply.output_tokens)

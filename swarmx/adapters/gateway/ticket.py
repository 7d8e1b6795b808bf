"""One call inside the gateway: where it waits, where it runs, what is known of it so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from swarmx.adapters.gateway.errors import Refused
from swarmx.types import Call, CallRecord, Messages, Prediction, Receipt, Status

if TYPE_CHECKING:
    from swarmx.adapters.gateway.replica import Replica


@dataclass(eq=False)
class Ticket:
    """Lives from arrival to the record.

    arm : which scheduler queues it; attempts : replicas tried; receipt : of the last decision
    streamed : something reached the client, so that another try must not start over
    blamed : replicas that answered with an error; opened : the count of the first one opened its breaker
    """

    call: Call
    size_bytes: int
    arm: str
    bound: asyncio.Future[Replica]
    prediction: Prediction | None = None
    replica: Replica | None = None
    receipt: Receipt | None = None
    attempts: int = 0
    streamed: bool = False
    over: bool = False
    dispatched_s: float | None = None
    first_token_s: float | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    prompt_tokens: int | None = None
    at_dispatch: tuple[int, int, int] | None = None
    interrupted: str | None = None
    timeout: asyncio.Timeout | None = None
    traceparent: str | None = None
    tried: list[str] = field(default_factory=list)
    blamed: list[Replica] = field(default_factory=list)
    opened: bool = False

    @property
    def waiting(self) -> bool:
        return self.replica is None and not self.over

    def bind(self, replica: Replica, receipt: Receipt | None, now: float) -> None:
        self.replica, self.receipt, self.attempts = replica, receipt, self.attempts + 1
        self.tried.append(replica.id)
        self.dispatched_s = now
        self.at_dispatch = (replica.observed.running, replica.observed.waiting, self._kv(replica))
        if not self.bound.done():
            self.bound.set_result(replica)

    def _kv(self, replica: Replica) -> int:
        return int(replica.observed.kv_share * (replica.observed.kv_capacity_tokens or 0))

    def unbind(self) -> None:
        """Back to waiting."""
        self.replica = self.interrupted = None  # an interruption is of one attempt
        self.bound = asyncio.get_running_loop().create_future()

    def reject(self, refusal: Refused) -> None:
        self.over = True
        if not self.bound.done():
            self.bound.set_exception(refusal)
            self.bound.exception()  # it may be that nobody waits any more

    def interrupt(self, reason: str) -> None:
        """Break off the running attempt, at once, if there is one and nothing else has ended it already."""
        if self.timeout is not None and not self.timeout.expired():
            self.interrupted = reason
            self.timeout.reschedule(asyncio.get_running_loop().time())

    def record(self, status: Status, now: float, policy: str) -> CallRecord:
        """What happened, without the prompt."""
        call, replica = self.call, self.replica
        running, waiting, kv = self.at_dispatch or (None, None, None)
        grid = None if self.prediction is None else tuple(float(v) for v in self.prediction.tokens.values)
        return CallRecord(
            call_id=call.id,
            model=call.model,
            arrival_s=call.arrival_s,
            status=status,
            workflow_id=call.workflow_id,
            parent_id=call.parent_id,
            workflow_arrival_s=call.workflow_arrival_s,
            tenant=call.tenant,
            priority=call.priority,
            type=call.type,
            prompt_tokens=call.prompt_tokens if self.prompt_tokens is None else self.prompt_tokens,
            max_tokens=call.max_tokens,
            deadline_s=call.deadline_s,
            replica=None if replica is None else replica.id,
            device=None if replica is None else replica.settings.device,
            dispatched_s=None if replica is None else self.dispatched_s,
            first_token_s=self.first_token_s,
            finished_s=now,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            running_at_dispatch=running,
            waiting_at_dispatch=waiting,
            kv_tokens_at_dispatch=kv,
            predicted_tokens=grid,
            prediction_source=None if self.prediction is None else self.prediction.source,
            policy=policy,
        )

    def with_prompt(self, record: CallRecord, mode: str) -> CallRecord:
        """The record as it is stored, see `stored`."""
        return stored(record, self.call.prompt, mode)


def stored(record: CallRecord, prompt: str | Messages, mode: str) -> CallRecord:
    """The record as it is stored: "hash" the prompt, "keep" or "drop" it; "embed" keeps it until it is written."""
    if mode == "drop":
        return record
    from swarmx.predict.text import text_of

    text = text_of(prompt)
    kept = text if mode in ("keep", "embed") else None
    return replace(record, prompt=kept, prompt_hash=None if mode == "keep" else _hash(text))


def _hash(text: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

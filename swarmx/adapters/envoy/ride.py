"""One call on its way through the picker, and the record of it."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

from swarmx.adapters.envoy.answer import Answer
from swarmx.adapters.envoy.lanes import Allowed
from swarmx.adapters.prompts import text_of
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Status


class Refused(Exception):
    """The call gets no endpoint. status : HTTP status; retry_after_s : when another try may help"""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_s = status, message, retry_after_s


@dataclass(slots=True, eq=False)
class Ride:
    """What the picker keeps of a call from its arrival to its end.

    lane : the scheduler that bound it; booked : whether it stands in the book
    address : where it was sent; fallbacks : addresses to try after that, in order
    seen : the replica as it was known at dispatch
    woken : set when a decision came for a held call; watched : a stream that only watches shows its answer
    """

    call: Call
    allowed: Allowed
    lane: Scheduler
    prediction: Prediction | None = None
    booked: bool = True
    address: str = ""
    fallbacks: tuple[str, ...] = ()
    seen: ReplicaState | None = None
    reason: str = ""
    decided_s: float | None = None
    first_token_s: float | None = None
    told_tokens: int = 0
    answer: Answer = field(default_factory=Answer)
    woken: asyncio.Future[None] | None = None
    over: bool = False
    watched: bool = False

    def record(self, status: Status, now: float, prompt: Literal["hash", "keep", "drop"] = "drop") -> CallRecord:
        """The finished call as a log keeps it; output tokens are 0 when the answer could not be read."""
        call, seen, answer, prediction = self.call, self.seen, self.answer, self.prediction
        text = text_of(call.prompt) if prompt != "drop" else ""
        return CallRecord(
            call_id=call.id, model=call.model, arrival_s=call.arrival_s, status=status, workflow_id=call.workflow_id,
            parent_id=call.parent_id, workflow_arrival_s=call.workflow_arrival_s, tenant=call.tenant,
            priority=call.priority, type=call.type, prompt=text if prompt == "keep" else None,
            prompt_hash=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if prompt != "drop" else None,
            prompt_tokens=answer.prompt_tokens if answer.prompt_tokens is not None else call.prompt_tokens,
            max_tokens=call.max_tokens, deadline_s=call.deadline_s, replica=self.address or None,
            device=seen.device if seen else None, dispatched_s=self.decided_s, first_token_s=self.first_token_s,
            finished_s=now, output_tokens=answer.tokens, cached_tokens=answer.cached_tokens,
            running_at_dispatch=seen.running if seen else None, waiting_at_dispatch=seen.waiting if seen else None,
            kv_tokens_at_dispatch=seen.kv_tokens if seen else None,
            predicted_tokens=None if prediction is None else tuple(map(float, prediction.tokens.values)),
            prediction_source=None if prediction is None else prediction.source, policy=self.lane.name,
        )  # fmt: skip


def named(call: Call, taken: int) -> Call:
    """The call under another id, for a client that uses one id twice at a time."""
    return replace(call, id=f"{call.id}#{taken}")

"""The records that travel between the parts of swarmx: all frozen, times in seconds, lengths in tokens.

A `Call` is one model call on its way; a `CallRecord` is one that ended, and at once a row of an execution log, of a
training set and of the drift monitor. A scheduler takes observations (`Call`, `ReplicaState`, `CallRecord`) and returns
decisions (`Start`, `Reject`, `Preempt`, `Move`, `Retrain`, `Offer`); adapters and the simulator carry them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from swarmx.quantiles import QuantileGrid

Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = (
    "high",
    "normal",
    "low",
)  # best first; the index is the class of the order key
Status = Literal["ok", "error", "cancelled", "preempted", "timeout", "rejected"]
Source = Literal["neural", "per_type", "pool_mean", "oracle", "borrowed"]  # borrowed: from other models' logs
Messages = tuple[Mapping[str, Any], ...]  # chat messages as the OpenAI API has them


@dataclass(frozen=True, slots=True)
class Call:
    """One model call that asks for a replica.

    workflow_id : calls of one agent run share it; a lone call is its own workflow
    workflow_work : predicted seconds of the whole workflow at the pool's mean speed, where the caller knows it
    prefix_blocks : hashes of the prompt's leading blocks; empty when prefixes are not tracked
    streamed : whether its tokens are seen as they come, and not its end alone
    """

    id: str
    model: str
    arrival_s: float
    prompt: str | Messages = ""
    prompt_tokens: int = 0
    max_tokens: int | None = None
    parent_id: str | None = None
    workflow_id: str = ""
    workflow_arrival_s: float | None = None
    workflow_work: float | None = None
    tenant: str = "default"
    priority: Priority = "normal"
    type: str | None = None
    deadline_s: float | None = None
    prefix_blocks: tuple[int, ...] = ()
    streamed: bool = True

    @property
    def workflow(self) -> str:
        return self.workflow_id or self.id

    @property
    def workflow_start_s(self) -> float:
        return self.arrival_s if self.workflow_arrival_s is None else self.workflow_arrival_s


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica reports of itself; what we sent to it lives in the scheduler's own book.

    slots : calls that it runs at once; context_tokens : longest prompt + answer; kv_capacity_tokens : KV cache
    speed : configured relative speed (1 = the pool's mean), used until the speed is learned
    reported_s : when the numbers were true; None means configured, never reported
    """

    id: str
    model: str
    device: str = "default"
    slots: int = 1
    context_tokens: int = 1_000_000
    kv_capacity_tokens: int = 10_000_000
    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0
    draining: bool = False
    breaker_open: bool = False
    speed: float = 1.0
    reported_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of a call: each distribution a one-dimensional `QuantileGrid`.

    tokens : output tokens (K,)
    downstream : model name -> number of calls that this call will still cause there (K,)
    remaining_tokens : output tokens that the workflow still holds after this call (K,)
    age_s : age of the predictor's training data, in seconds; None when it has none
    """

    tokens: QuantileGrid
    source: Source = "neural"
    downstream: Mapping[str, QuantileGrid] = field(default_factory=dict)
    remaining_tokens: QuantileGrid | None = None
    model_version: str = ""
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished call. Field by field in data/SCHEMA.md; times are seconds on the log's own clock."""

    call_id: str
    model: str
    arrival_s: float
    status: Status
    workflow_id: str = ""
    parent_id: str | None = None
    waits_for: tuple[str, ...] = ()  # all calls that had to end first; the last of them to end is parent_id
    workflow_arrival_s: float | None = None
    tenant: str = "default"
    priority: Priority = "normal"
    type: str | None = None
    prompt: str | None = None
    prompt_hash: str | None = None
    prompt_group: str | None = None  # rows that share it share a template: split by it, never by row
    prompt_tokens: int = 0
    max_tokens: int | None = None
    deadline_s: float | None = None
    replica: str | None = None
    device: str | None = None
    dispatched_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    running_at_dispatch: int | None = None
    waiting_at_dispatch: int | None = None
    kv_tokens_at_dispatch: int | None = None
    predicted_tokens: tuple[float, ...] | None = None  # the grid at dispatch, levels as in `quantiles.LEVELS`
    prediction_source: Source | None = None
    policy: str | None = None
    embedding: bytes | None = None  # fp16 little endian
    encoder_sha: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that was considered for a call, with the terms of its cost in seconds."""

    replica: str
    own_s: float
    harm_s: float
    cost_s: float
    releases: float  # calls that must end there before this one can start; 0 means it can start now


@dataclass(frozen=True, slots=True)
class Receipt:
    """Why a call was started, held or refused. `swarmx explain` prints it."""

    id: str
    call_id: str
    decided_s: float
    policy: str
    action: Literal["start", "hold", "reject"]
    tier: Source | Literal["none"]
    replica: str | None = None
    reason: str = ""
    candidates: tuple[Candidate, ...] = ()
    predicted_tokens: tuple[float, ...] | None = None
    model_version: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Send the call to this replica now."""

    call_id: str
    replica: str
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """The call will not be served; tell the caller why. retry_after_s is None when a retry cannot help."""

    call_id: str
    reason: str
    retry_after_s: float | None = None
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop the running call on its replica; it goes back to the queue with its key.

    keeps : what it has produced is kept and becomes part of its prompt; else it begins anew
    """

    call_id: str
    replica: str
    reason: str
    keeps: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """Take the call from one replica to another, keeping its work where the engines can.

    stall_s : how long it stands still; carries_kv : its KV cache goes with it, and nothing is prefilled again
    """

    call_id: str
    source: str
    target: str
    reason: str
    stall_s: float = 0.0
    carries_kv: bool = False


@dataclass(frozen=True, slots=True)
class Retrain:
    """The predictor has drifted for this group; retraining is worth its cost."""

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Tell another router of the pool that a replica has room: it has the more urgent call (`swarmx.shard`).

    replica : its state, true at `reported_s`; router, sender : names of who is to hear it and of who says it
    head : key of the sender's own most urgent waiting call; asked : routers that have had their turn
    """

    replica: ReplicaState
    router: str
    sender: str
    head: tuple[int, float, float, str] | None = None
    asked: tuple[str, ...] = ()


Decision = Start | Reject | Preempt | Move | Retrain | Offer

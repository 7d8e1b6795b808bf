"""A call on its way through the simulation: the one record that changes, shared by the loop and the replicas."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from swarmx.sim.workload import SimCall
from swarmx.types import Call

if TYPE_CHECKING:
    from swarmx.sim.replicas import Replica


class Job:
    """What loop and replicas know of a call.

    wanted_tokens : what it will produce if no replica cuts it; output_tokens : what it will produce where it is
    produced : tokens kept from before; starts : how often it was started
    attempt : number of its present attempt: a message about an earlier one is dropped; told : the last attempt whose
        first token was told
    carried_tokens : KV tokens that come along to the next replica
    start_mark, end_mark : the replica's work clock when it had no token yet, and when it has all
    """

    __slots__ = (
        "attempt",
        "cached_tokens",
        "call",
        "carried_tokens",
        "dispatched_s",
        "end_mark",
        "first_token_s",
        "flow",
        "kv_at_dispatch",
        "output_tokens",
        "place",
        "prefill_left",
        "produced",
        "replica",
        "router",
        "row",
        "running_at_dispatch",
        "sim",
        "start_mark",
        "started_s",
        "starts",
        "told",
        "waiting_at_dispatch",
        "wanted_tokens",
    )

    def __init__(self, call: Call, sim: SimCall, row: int, flow: Any, place: int, router: Any) -> None:
        self.call = call
        self.sim = sim
        self.row = row
        self.flow = flow
        self.place = place
        self.router = router
        self.wanted_tokens: float = (
            sim.output_tokens if sim.max_tokens is None else min(sim.output_tokens, sim.max_tokens)
        )
        self.output_tokens: float = self.wanted_tokens
        self.produced: float = 0.0
        self.attempt = self.starts = 0
        self.told = -1
        self.replica: Replica | None = None
        self.dispatched_s = self.started_s = self.first_token_s = nan
        self.cached_tokens = self.running_at_dispatch = self.waiting_at_dispatch = self.kv_at_dispatch = 0
        self.start_mark = self.end_mark = self.prefill_left = self.carried_tokens = 0.0

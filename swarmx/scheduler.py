"""The scheduler: takes what is observed, returns what to do. Pure: no I/O, no clock, no global random state.

One scheduler serves one model pool. Adapters and the simulator run this same object: they report arrivals, progress and
ends, and carry out the decisions that come back. A call's way: `arrive` puts it into the queue with a key; `immediate`
binding sends it to the cheapest replica at once; `late` binding walks the queue whenever something changes and starts
only calls whose cheapest replica is free now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.engine import OnlineFit
from swarmx.guard import ObservedLengths
from swarmx.late import LateWalk
from swarmx.ordering import Order
from swarmx.routing.placement import Placement, outstanding
from swarmx.state import ClusterState
from swarmx.types import (
    PRIORITIES,
    Call,
    CallRecord,
    Decision,
    Prediction,
    Reject,
    ReplicaState,
    Source,
    Start,
)
from swarmx.waiting import Waiting, WaitingQueue, waiting_of

MAX_WORKFLOWS = 100_000  # workflows whose predicted work is remembered
SERVICE_MEMORY = 500  # finished calls over which the mean service time is taken


@dataclass(frozen=True, slots=True)
class Combination:
    """What a preset names: how calls are ordered, bound and placed, and which predictions it may use.

    tier : best predictions it looks at: "neural" any that it is given, "per_type" observed lengths of the call's type,
        "pool_mean" observed lengths of all calls
    own_of, sd_weight, level : what counts as the call's own output tokens: "mean", "mean_sd" or "quantile"
    refuse_s : how long a replica that refused a call is not asked again for it
    """

    placement: Placement
    order: Order
    binding: Literal["immediate", "late"] = "immediate"
    late: LateWalk | None = None
    tier: Source = "neural"
    own_of: Literal["mean", "mean_sd", "quantile"] = "mean"
    sd_weight: float = 0.5
    level: float = 0.95
    refuse_s: float = 1.0


@dataclass
class Scheduler:
    """Order + binding + placement for one model pool."""

    name: str
    parts: Combination
    fit: OnlineFit = field(default_factory=OnlineFit)
    seed: int = 0

    def __post_init__(self) -> None:
        self.cluster = ClusterState(self.fit)
        self.queue = WaitingQueue()
        self.lengths = ObservedLengths()
        self.rng = np.random.default_rng(self.seed)
        self.mean_service_s = 0.0
        self.mean_prompt = 0.0
        self._arrived = 0
        self._finished = 0
        self._bound: dict[str, Waiting] = {}
        self._works: OrderedDict[str, float] = OrderedDict()

    @property
    def tick_s(self) -> float:
        """Wanted period of `tick`: a quarter of the mean service time, within [0.05, 1] s."""
        return min(max(0.25 * self.mean_service_s, 0.05), 1.0)

    # ---- observations ---------------------------------------------------------------------------------------------

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> list[Decision]:
        """A call asks for a replica. Raises ValueError when a call of that id is here already."""
        if call.id in self._bound:
            raise ValueError(f"call {call.id!r} runs already")
        if (reason := self._impossible(call)) is not None:
            return [Reject(call.id, reason)]
        self._arrived += 1
        self.mean_prompt += (call.prompt_tokens - self.mean_prompt) / min(self._arrived, SERVICE_MEMORY)
        self.queue.add(self._entry(call, prediction, now))
        return self._bind(now)

    def predicted(self, call_id: str, prediction: Prediction, now: float) -> list[Decision]:
        """The prediction of a call that arrived without one; too late when the call has started."""
        waiting = self.queue.get(call_id)
        if waiting is None:
            return []
        self.queue.remove(waiting)
        fresh = self._entry(waiting.call, prediction, waiting.since_s)
        fresh.overtaken, fresh.pin, fresh.refused, fresh.attempts = (
            waiting.overtaken,
            waiting.pin,
            waiting.refused,
            waiting.attempts,
        )
        self.queue.add(fresh)
        return self._bind(now)

    def started(self, call_id: str, now: float) -> list[Decision]:
        """The first token of a call has been seen."""
        self.cluster.first_token(call_id, now)
        return []

    def progress(self, call_id: str, tokens: float, now: float) -> list[Decision]:
        """A running call has produced so many tokens in all."""
        self.cluster.progress(call_id, tokens, now)
        return []

    def finished(self, record: CallRecord, now: float, retry: bool = False) -> list[Decision]:
        """A call ended, in any status. With `retry` it goes back to the queue with its key; else it is over."""
        waiting = self._bound.pop(record.call_id, None)
        if waiting is None:
            waiting = self.queue.get(record.call_id)
            if waiting is not None and not retry:  # cancelled while it waited
                self.queue.remove(waiting)
            return self._bind(now)
        if record.status == "ok":
            flight = self.cluster.finish(record.call_id, record.output_tokens, now)
            self.lengths.observe(record.type, record.output_tokens)
            if flight is not None:
                self._observe_service(now - flight.started_s)
        else:
            self.cluster.remove(record.call_id, now)
            if retry:
                self._put_back(waiting)
        return self._bind(now)

    def refused(self, call_id: str, state: ReplicaState, now: float) -> list[Decision]:
        """A replica did not take a call that was started on it; its state comes with the refusal."""
        waiting = self._bound.pop(call_id, None)
        self.cluster.remove(call_id, now)
        if state.id in self.cluster.index:
            self.cluster.report(state)
        if waiting is not None:
            waiting.refused[state.id] = now + self.parts.refuse_s
            self._put_back(waiting)
        return self._bind(now)

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> list[Decision]:
        """The replicas as they are now; calls of those that are gone go back to the queue."""
        for call_id in self.cluster.set_replicas(states, now):
            waiting = self._bound.pop(call_id, None)
            if waiting is not None:
                self._put_back(waiting)
        return self._bind(now)

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: refusals run out, held calls come due."""
        return self._bind(now) if self.queue else []

    @property
    def _batched(self) -> bool:
        return any(state.slots > 1 for state in self.cluster.states)

    # ---- decisions ------------------------------------------------------------------------------------------------

    def _bind(self, now: float) -> list[Decision]:
        if not self.queue or not self.cluster.states:
            return []
        if self.parts.late is not None:
            free = self.cluster.refresh(now)
            if free == 0:
                return []
            if self.cluster.is_fitted:
                starts = self.parts.late.starts(
                    self.queue, self.cluster, free, self.mean_service_s, self.mean_prompt, now
                )
                return [self._start(waiting, i, now) for waiting, i in starts]
        return self._bind_by_placement(now)

    def _bind_by_placement(self, now: float) -> list[Decision]:
        """Each waiting call in order on its cheapest replica; under late binding only on one that is free."""
        decisions: list[Decision] = []
        late = self.parts.binding == "late"
        for waiting in list(self.queue):
            usable = self.usable(waiting, now)
            if late:
                free = self._has_room(waiting)
                if not np.any(free):
                    break
                usable &= free
            if not np.any(usable):
                continue
            costs = self.parts.placement.costs(waiting, self.cluster, usable, now, self.rng)
            decisions.append(self._start(waiting, self._cheapest(costs, usable), now))
        return decisions

    def _has_room(self, waiting: Waiting) -> NDArray[np.bool_]:
        table = self.cluster.replicas
        n = table[kernel.MINE] + table[kernel.OTHER]
        need = waiting.call.prompt_tokens + waiting.mean / 2
        fits = (table[kernel.KV] + need <= table[kernel.KV_CAPACITY]) | (n == 0)
        room: NDArray[np.bool_] = (n < table[kernel.SLOTS]) & fits
        return room

    def usable(self, waiting: Waiting, now: float) -> NDArray[np.bool_]:
        """(R,) replicas that may serve the call now: open, large enough, and not just having refused it."""
        table = self.cluster.replicas
        cap = np.minimum(table[kernel.CONTEXT], table[kernel.KV_CAPACITY])
        usable: NDArray[np.bool_] = (table[kernel.USABLE] > 0) & (waiting.call.prompt_tokens + 1 <= cap)
        for replica, until in waiting.refused.items():
            if until > now and replica in self.cluster.index:
                usable[self.cluster.index[replica]] = False
        return usable

    def _cheapest(self, costs: NDArray[np.float64], usable: NDArray[np.bool_]) -> int:
        """Argmin over usable replicas; ties go to the emptier one, then to the first."""
        masked = np.where(usable, costs, np.inf)
        ties = np.flatnonzero(masked == masked.min())
        if ties.size == 1:
            return int(ties[0])
        fill = outstanding(self.cluster)[ties] / self.cluster.replicas[kernel.SLOTS, ties]
        return int(ties[int(np.argmin(fill))])

    def _start(self, waiting: Waiting, i: int, now: float) -> Start:
        call = waiting.call
        self.queue.overtake(self.queue.remove(waiting))
        waiting.attempts += 1
        self._bound[call.id] = waiting
        self.cluster.start(
            call.id,
            i,
            waiting.mean,
            waiting.grid,
            waiting.excess,
            call.prompt_tokens,
            call.prompt_tokens,
            now,
        )
        return Start(call.id, self.cluster.states[i].id)

    # ---- bookkeeping ----------------------------------------------------------------------------------------------

    def _entry(self, call: Call, prediction: Prediction | None, since_s: float) -> Waiting:
        parts = self.parts
        if prediction is None or parts.tier != "neural":
            prediction = self.lengths.expect(None if parts.tier == "pool_mean" else call.type)
        work = self._workflow_work(call, prediction)
        key = (
            PRIORITIES.index(call.priority),
            parts.order.key(call, work, self._batched),
            call.arrival_s,
            call.id,
        )
        return waiting_of(call, prediction, key, parts.own_of, parts.sd_weight, parts.level, since_s)

    def _workflow_work(self, call: Call, prediction: Prediction) -> float:
        """Predicted seconds of the call's workflow, fixed when its first call is seen; 0 while nothing is known."""
        known = self._works.get(call.workflow)
        if known is None:
            known = 0.0
            if call.workflow_work is not None:
                known = call.workflow_work
            elif prediction.remaining_tokens is not None and self.cluster.is_fitted:
                tokens = float(prediction.tokens.mean() + prediction.remaining_tokens.mean())
                known = tokens * float(np.mean(self.cluster.replicas[kernel.A] + self.cluster.replicas[kernel.B]))
            self._works[call.workflow] = known
            if len(self._works) > MAX_WORKFLOWS:
                self._works.popitem(last=False)
        return known

    def _put_back(self, waiting: Waiting) -> None:
        self.queue.add(waiting)

    def _observe_service(self, seconds: float) -> None:
        self._finished += 1
        self.mean_service_s += (seconds - self.mean_service_s) / min(self._finished, SERVICE_MEMORY)

    def _impossible(self, call: Call) -> str | None:
        """Why no replica could ever serve the call, or None."""
        if not self.cluster.states:
            return None
        longest = max(min(s.context_tokens, s.kv_capacity_tokens) for s in self.cluster.states)
        if call.prompt_tokens + 1 > longest:
            return f"a prompt of {call.prompt_tokens} tokens fits no replica; the largest takes {longest - 1}"
        return None

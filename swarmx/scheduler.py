"""The scheduler: takes what is observed, returns what to do. Pure: no I/O, no clock, no global random state.

One scheduler serves one model pool. Adapters and the simulator run this same object: they report arrivals, progress and
ends, and carry out the decisions that come back. A call's way: `arrive` puts it into the queue with a key; `immediate`
binding sends it to the cheapest replica at once; `late` binding walks the queue whenever something changes and starts
only calls whose cheapest replica is free now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx import placing
from swarmx.admission import Gate, outlook_of
from swarmx.combination import Combination
from swarmx.engine import OnlineFit
from swarmx.explain import candidates_of, receipt_of, rejection_of
from swarmx.fairness import Ledger
from swarmx.inheritance import Inheritance
from swarmx.intake import Intake
from swarmx.interruptions import Interruptions
from swarmx.observers import Observers
from swarmx.ordering import aging_of, queue_for
from swarmx.pacing import Pacer
from swarmx.sharing import Sharing
from swarmx.state import ClusterState
from swarmx.types import Call, CallRecord, Decision, Prediction, Receipt, Reject, ReplicaState, Start
from swarmx.waiting import Waiting

SERVICE_MEMORY = 500  # calls over which the running means of service time and prompt length are taken


@dataclass
class Scheduler:
    """Order + binding + placement for one model pool.

    fit : the service model, which may come with known constants; receipts : whether each Start carries one
    """

    name: str
    parts: Combination
    fit: OnlineFit = field(default_factory=OnlineFit)
    seed: int = 0
    receipts: bool = False

    def __post_init__(self) -> None:
        parts = self.parts
        self.cluster = ClusterState(self.fit, parts.learns, parts.block_tokens)
        self.cluster.reserve = parts.reserve
        self.queue = queue_for(parts.order)
        self.aging = aging_of(parts.aging, parts.order)
        self.intake = Intake(parts.order, parts.tier, parts.own_of, parts.sd_weight, parts.level, classes=parts.classes)
        self.rng = np.random.default_rng(self.seed)
        self.mean_service_s = 0.0
        self._look_for_silence_s = 0.0
        self.mean_prompt = 0.0
        self._arrived = self._served = 0
        self._batched = False
        self._bound: dict[str, Waiting] = {}
        inheritance = Inheritance() if parts.inherits else None
        if inheritance is not None:
            self.intake.levels = inheritance.level
        self.pacer = None if parts.pacing is None else Pacer(parts.pacing)
        sharing = Sharing(getattr(parts.order, "weights", None))
        self.observers = Observers(self.intake.hooks, Gate(parts.admission), Ledger(), inheritance, sharing)
        self.interruptions = Interruptions(
            self.queue, self.cluster, self._bound, self.observers, parts.preemption, parts.migration, parts.stealing
        )

    @property
    def tick_s(self) -> float:
        """Wanted period of `tick`: a quarter of the mean service time, within [0.05, 1] s."""
        return min(max(0.25 * self.mean_service_s, 0.05), 1.0)

    # ---- observations ----

    def arrive(self, call: Call, prediction: Prediction | None, now: float) -> list[Decision]:
        """A call asks for a replica. Raises ValueError when a call of that id is here already."""
        if call.id in self._bound:
            raise ValueError(f"call {call.id!r} runs already")
        call = self.intake.classed(call)
        if (reason := placing.impossible(self.cluster, call)) is not None:
            return [Reject(call.id, reason)]
        self._arrived += 1
        self.mean_prompt += (call.prompt_tokens - self.mean_prompt) / min(self._arrived, SERVICE_MEMORY)
        risen = self.observers.arrived(call)
        waiting = self.intake.entry(call, prediction, now, self.cluster, self._batched)
        if (rejected := self._refuse(waiting, now)) is not None:
            return [rejected]
        self.queue.add(waiting)
        self.observers.entered(waiting, now)
        if risen:
            self._raise(now)
        return self._bind(now)

    def waits(self, workflow_id: str, on: str, now: float) -> list[Decision]:
        """A workflow cannot go on before `on`, a call or a workflow, has ended: with `inherits` that gets its class."""
        if self.observers.inheritance is not None:
            self.observers.inheritance.waits(workflow_id, on)
            self._raise(now)
        return self._bind(now)

    def predicted(self, call_id: str, prediction: Prediction, now: float) -> list[Decision]:
        """The prediction of a call that arrived without one; too late when the call has started."""
        waiting = self.queue.get(call_id)
        if waiting is None:
            return []
        fresh = self.intake.entry(waiting.call, prediction, now, self.cluster, self._batched)
        waiting.prediction, waiting.lengths = fresh.prediction, fresh.lengths
        self.queue.rekey(waiting, fresh.key)
        return self._bind(now)

    def started(self, call_id: str, now: float) -> list[Decision]:
        """The first token of a call has been seen."""
        self.cluster.first_token(call_id, now)
        return []

    def progress(self, call_id: str, tokens: float, now: float) -> list[Decision]:
        """A running call has produced so many tokens in all."""
        if (waiting := self._bound.get(call_id)) is not None:
            self.cluster.progress(call_id, tokens - waiting.attained, now)
            self.observers.progressed(waiting, tokens, now)
        return []

    def finished(
        self, record: CallRecord, now: float, retry: bool = False, state: ReplicaState | None = None
    ) -> list[Decision]:
        """A call ended, in any status. With `retry` it goes back to the queue with its key; else it is over. state : of
        its replica after that, where the answer tells it: what other routers have there by then"""
        call_id, tokens = record.call_id, record.output_tokens
        waiting = self._bound.pop(call_id, None)
        if waiting is None:  # it was still waiting, or we do not know it
            waiting = self.queue.get(call_id)
            if waiting is not None and not retry:
                self.queue.remove(waiting)
                self.observers.withdrawn(waiting, now)
                self.intake.ended(waiting.call, None)
        elif record.status == "ok":
            self.observers.stopped(waiting, tokens, now, True)
            flight = self.cluster.finish(call_id, max(tokens - waiting.attained, 0.0), now)
            self.intake.ended(waiting.call, tokens)
            if state is not None and state.id in self.cluster.index:
                self.cluster.report(state)
            if flight is not None:
                if self.pacer is not None:
                    self.pacer.ended(flight.replica)
                self._served += 1
                service_s = now - flight.started_s
                self.mean_service_s += (service_s - self.mean_service_s) / min(self._served, SERVICE_MEMORY)
        else:
            self.cluster.remove(call_id, now)
            self.observers.stopped(waiting, tokens, now, not retry)
            if retry:
                self.queue.add(waiting)
            else:
                self.intake.ended(waiting.call, None)
        return self._bind(now)

    def refused(self, call_id: str, state: ReplicaState, now: float) -> list[Decision]:
        """A replica did not take a call that was started on it; its state comes with the refusal."""
        waiting = self._bound.pop(call_id, None)
        self.cluster.remove(call_id, now)
        if state.id in self.cluster.index:
            self.cluster.report(state)
        if waiting is not None:
            waiting.refused[state.id] = now + self.parts.refuse_s
            self._pause(state.id, None if self.pacer is None else self.pacer.refused(state.id, now, self.rng))
            self.observers.stopped(waiting, waiting.attained, now, False)
            self.queue.add(waiting)
        return self._bind(now)

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> list[Decision]:
        """The replicas as they are now; calls of those that are gone go back to the queue."""
        self._batched = any(state.slots > 1 for state in states)
        for call_id in self.cluster.set_replicas(states, now):
            waiting = self._bound.pop(call_id, None)
            if waiting is not None:
                self.observers.stopped(waiting, waiting.attained, now, False)
                self.queue.add(waiting)
        return self._bind(now)

    def placed(self, call_id: str, replica: str, now: float) -> None:
        """Somebody else started the call there: the book follows, whatever was decided here."""
        waiting = self._bound.get(call_id)
        if waiting is None:
            waiting = self.queue.get(call_id)
            if waiting is None or replica not in self.cluster.index:
                return
            self.queue.remove(waiting)
            self.observers.started(waiting, now)
            self._bound[call_id] = waiting
        elif self.cluster.flights[call_id].replica == replica or replica not in self.cluster.index:
            return
        else:
            self.cluster.remove(call_id, now)
        self.cluster.start(waiting.call, waiting.lengths, self.cluster.index[replica], now)

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: refusals run out, held calls come due, silent replicas are found."""
        if now >= self._look_for_silence_s:
            self._look_for_silence_s = now + max(1.0, self.mean_service_s)
            self.cluster.find_hung(now)
        decisions = self.interruptions.reap(self.name, self.parts.refuse_s, now)
        decisions += self.interruptions.shift(now, self.rng)
        return decisions + self._bind(now)

    # ---- decisions ----

    def _bind(self, now: float) -> list[Decision]:
        hooks = self.observers.hooks
        hooks.passed(now)
        if self.pacer is not None:
            self.cluster.resume(now)
        for call_id in hooks.stale():
            if (waiting := self.queue.get(call_id)) is not None:
                self.queue.rekey(waiting, self.intake.again(waiting, self.cluster, self._batched, now))
        self.queue.settle()
        if not self.queue or not self.cluster.states:
            return []
        decisions = self._fill(now)
        more = decisions
        while more and self.queue.refills:
            more = self._fill(now)
            decisions = decisions + more
        decisions += self.interruptions.displace(now, self._start)
        return decisions

    def _fill(self, now: float) -> list[Decision]:
        """Start what can start on free places."""
        if self.parts.binding == "late":
            free = self.cluster.refresh(now)
            if free == 0:
                return []
            if self.parts.late is not None and self.cluster.is_fitted:
                starts = self.parts.late.starts(self.queue, self._due(now), self.cluster, self.mean_prompt, now)
                return [self._start(waiting, i, now) for waiting, i in starts]
        binds = placing.starts(self.parts, self.queue, self._due(now), self.cluster, now, self.rng)
        return [self._start(waiting, i, now) for waiting, i in binds]

    def _due(self, now: float) -> tuple[list[Waiting], list[Waiting]]:
        if self.aging is None:
            return [], []
        return self.aging.split(self.queue, self.observers.shut_out, self.mean_service_s, now)

    def usable(self, waiting: Waiting, now: float) -> NDArray[np.bool_]:
        """(R,) replicas that may serve the call now."""
        return placing.usable(self.cluster, waiting, now)

    def _start(self, waiting: Waiting, i: int, now: float) -> Start:
        call, replica = waiting.call, self.cluster.states[i].id
        waiting.attempts += 1
        receipt = self._receipt(waiting, "start", now, replica) if self.receipts else None
        self.queue.start(waiting)
        self.observers.started(waiting, now)
        self.queue.settle()
        self._bound[call.id] = waiting
        self.cluster.start(call, waiting.lengths, i, now)
        self._pause(replica, None if self.pacer is None else self.pacer.started(replica, now))
        return Start(call.id, replica, receipt)

    def _pause(self, replica: str, until_s: float | None) -> None:
        if until_s is not None:
            self.cluster.pause(replica, until_s)

    def _refuse(self, waiting: Waiting, now: float) -> Reject | None:
        gate = self.observers.gate
        if gate.is_open:
            return None
        self.cluster.refresh(now)
        refusal = gate.judge(waiting, outlook_of(self.cluster, waiting.lengths.mean), now)
        if refusal is None:
            return None
        self.observers.refused(waiting, now)
        return rejection_of(waiting, self.name, refusal.reason, refusal.retry_after_s, now)

    def _raise(self, now: float) -> None:
        """Classes may have risen: waiting calls move, running ones are safe from their new equals."""
        for waiting in self.queue.calls():
            if self.intake.levels(waiting.call) < waiting.level:
                self.queue.rekey(waiting, self.intake.again(waiting, self.cluster, self._batched, now))
        for waiting in self._bound.values():
            waiting.level = min(waiting.level, self.intake.levels(waiting.call))

    # ---- explanations ----

    def explain(self, call_id: str, now: float) -> Receipt | None:
        """Why a waiting call is held; None when no call of that id waits."""
        waiting = self.queue.get(call_id)
        return None if waiting is None else self._receipt(waiting, "hold", now)

    def _receipt(self, waiting: Waiting, action: str, now: float, replica: str | None = None) -> Receipt:
        self.cluster.refresh(now)
        late = self.parts.late
        weights = (1.0, 1.0) if late is None else late.weights(self.cluster, self.mean_prompt)
        candidates = candidates_of(waiting, self.cluster, self.usable(waiting, now), weights, now)
        return receipt_of(waiting, waiting.attempts, self.name, action, candidates, now, replica)

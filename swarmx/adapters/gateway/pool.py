"""One pool of replicas with its queue: carries out what the scheduler decides, and tells it what happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from swarmx.adapters.gateway.arms import Arms
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.metrics import Metrics
from swarmx.adapters.gateway.receipts import ReceiptStore
from swarmx.adapters.gateway.replica import Replica
from swarmx.adapters.gateway.settings import LimitSettings, UpstreamSettings
from swarmx.adapters.gateway.ticket import Ticket
from swarmx.adapters.live_work import LiveDemand
from swarmx.adapters.settings import PoolSettings, ReplicaSettings
from swarmx.types import Call, CallRecord, Decision, Move, Prediction, Preempt, Receipt, Reject, Start, Status

SYNC_S = 0.25  # replicas' states reach the scheduler no more often than this, unless something broke


class Pool:
    """Queue and replicas of one model. Everything runs on the event loop, and no method but `run` waits."""

    def __init__(
        self,
        name: str,
        settings: PoolSettings,
        arms: Arms,
        limits: LimitSettings,
        upstream: UpstreamSettings,
        clock: Clock,
        metrics: Metrics,
        receipts: ReceiptStore,
        ended: Callable[[Ticket, CallRecord], None],
    ) -> None:
        self.name = name
        self.settings = settings
        self.arms = arms
        self.limits = limits
        self.upstream = upstream
        self.clock = clock
        self.metrics = metrics
        self.receipts = receipts
        self.on_ended = ended
        self.replicas: dict[str, Replica] = {}
        self.tickets: dict[str, Ticket] = {}
        self.waiting_calls = self.waiting_bytes = self.arrived = self.over = 0
        self.live: LiveDemand | None = None  # told of every call, where a scaler looks
        self.tokens_per_char = 0.25
        self._synced_s = 0.0
        self._dirty = True
        for replica in settings.replicas:
            self.add_replica(replica)
        self.sync()

    # ---- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call, prediction: Prediction | None, size_bytes: int) -> Ticket:
        """Queue a call. Raises Refused when the queue is full or no replica could ever serve it."""
        limits = self.limits
        if self.waiting_calls >= limits.waiting_calls or self.waiting_bytes + size_bytes > limits.waiting_bytes:
            raise Refused(429, f"the queue of {self.name} is full", "queue_full", None, self.expected_wait_s())
        arm = self.arms.arm_of(call)
        future: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        ticket = Ticket(call, size_bytes, arm, future, prediction)
        self.tickets[call.id] = ticket
        self._wait(ticket)
        now = self.clock.now()
        self.arrived += 1
        if self.live is not None:
            self.live.arrived(call, prediction, now)
        self._apply(self.arms.arrive(arm, call, prediction, now))
        return ticket

    def predicted(self, call_id: str, prediction: Prediction) -> None:
        """A prediction that came after its budget."""
        ticket = self.tickets.get(call_id)
        if ticket is not None and ticket.waiting:
            ticket.prediction = prediction
            self._apply(self.arms.predicted(ticket.arm, call_id, prediction, self.clock.now()))

    def first_token(self, ticket: Ticket) -> None:
        now = self.clock.now()
        if ticket.first_token_s is None:
            ticket.first_token_s = now
            self.metrics.first_token.labels(self.name).observe(now - ticket.call.arrival_s)
        self.arms.started(ticket.arm, ticket.call.id, now)

    def progress(self, ticket: Ticket, tokens: float) -> None:
        self.arms.progress(ticket.arm, ticket.call.id, tokens, self.clock.now())

    def put_back(self, ticket: Ticket, reason: str) -> None:
        """An attempt failed before anything was streamed, or is to be continued: queue the call again, elsewhere."""
        now = self.clock.now()
        replica = self._requeue(ticket, reason)
        state = replica.state(self.upstream, now)
        self._apply(self.arms.refused(ticket.arm, ticket.call.id, state, now))

    def finish(self, ticket: Ticket, status: Status) -> CallRecord:
        """The call is over, in any status."""
        now = self.clock.now()
        record = ticket.record(status, now, self.arms.scheduler(ticket.arm).name)
        if ticket.replica is None:
            self._leave_queue(ticket)
        else:
            self._free(ticket)
        ticket.over = True
        self.tickets.pop(ticket.call.id, None)
        self._learn(ticket, status)
        self._apply(self.arms.finished(ticket.arm, record, now))
        self._ended(ticket, record)
        return record

    def expected_wait_s(self) -> float:
        """A guess at how long the queue takes, for Retry-After."""
        slots = sum(r.slots(self.upstream, self.clock.now()) for r in self.replicas.values() if r.healthy) or 1
        service_s = max((s.mean_service_s for s in self.arms.schedulers()), default=0.0) or 1.0
        return min(60.0, max(1.0, self.waiting_calls * service_s / slots))

    # ---- replicas -------------------------------------------------------------------------------------------------

    def add_replica(self, settings: ReplicaSettings, source: str = "config", probed: bool = False) -> Replica:
        """Add one, or change one of that id. New ones are used at once; a failed probe or call takes them out."""
        found = self.replicas.get(settings.name)
        if found is not None:
            found.settings, found.leaving, found.draining = settings, False, False
        else:
            found = Replica(settings, self.name, source=source, probed=probed, ready_s=self.clock.now())
            found.authorization()
            self.replicas[found.id] = found
        self._dirty = True
        return found

    def drain(self, replica: Replica, leave: bool) -> None:
        """Send nothing more there; with `leave`, remove it once nothing runs there."""
        replica.draining, replica.leaving = True, leave
        self.sync()

    def undrain(self, replica: Replica) -> None:
        replica.draining = replica.leaving = False
        self.sync()

    def replica_lost(self, replica: Replica, reason: str) -> None:
        """It does not answer: its calls that streamed nothing go elsewhere, the others have their stall limit."""
        self.sync()
        for ticket in self.on(replica):
            if not ticket.streamed:
                ticket.interrupt(reason)

    def on(self, replica: Replica) -> list[Ticket]:
        """Calls that run there now."""
        return [t for t in self.tickets.values() if t.replica is replica]

    def sync(self) -> None:
        """Tell the schedulers what the replicas are like now."""
        now = self.clock.now()
        gone = [r.id for r in self.replicas.values() if r.leaving and r.in_flight == 0]
        for name in gone:
            del self.replicas[name]
        self._synced_s, self._dirty = now, False
        states = [r.state(self.upstream, now) for r in self.replicas.values()]
        self._apply(self.arms.replicas_changed(states, now))

    def changed(self) -> None:
        """Something about a replica is new; the schedulers hear of it soon."""
        self._dirty = True

    async def run(self) -> None:
        """Keep the schedulers' sense of time; never returns."""
        open_before = 0
        while True:
            await asyncio.sleep(min(s.tick_s for s in self.arms.schedulers()))
            now = self.clock.now()
            usable = sum(r.usable(now) for r in self.replicas.values())
            warming = self.upstream.slow_start_s > 0 and any(
                now < r.ready_s + self.upstream.slow_start_s for r in self.replicas.values()
            )
            if (self._dirty or usable != open_before or warming) and now - self._synced_s >= SYNC_S:
                open_before = usable
                self.sync()
            self._apply(self.arms.tick(now))

    # ---- decisions ------------------------------------------------------------------------------------------------

    def _apply(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self._start(decision)
            elif isinstance(decision, Reject):
                self._reject(decision)
            elif isinstance(decision, Preempt):
                self._take_off(self.tickets.get(decision.call_id))
            elif isinstance(decision, Move):
                self._interrupt(decision.call_id, "moved")

    def _start(self, start: Start) -> None:
        ticket = self.tickets[start.call_id]
        found = self.replicas[start.replica]
        now = self.clock.now()
        if ticket.replica is not None:
            self._stays(ticket, ticket.replica)
            return
        self._leave_queue(ticket)
        found.in_flight += 1
        ticket.bind(found, start.receipt, now)
        self.arms.placed(ticket.call.id, found.id, now)
        if self.live is not None:
            self.live.started(ticket.call.id, now)
        tier = start.receipt.tier if start.receipt is not None else "none"
        policy = self.arms.scheduler(ticket.arm).name
        self.metrics.decisions.labels(self.name, policy, tier, "start").inc()
        if ticket.attempts == 1:
            self.metrics.wait.labels(self.name, ticket.call.priority).observe(now - ticket.call.arrival_s)
        if start.receipt is not None:
            self.receipts.add(_told(start.receipt, ticket.tried[:-1]))

    def _reject(self, reject: Reject) -> None:
        if self.tickets[reject.call_id].replica is not None:  # it has streamed and runs to its end
            return
        ticket = self.tickets.pop(reject.call_id)
        self._leave_queue(ticket)
        self._ended(ticket, ticket.record("rejected", self.clock.now(), self.arms.scheduler(ticket.arm).name))
        self.metrics.decisions.labels(self.name, self.arms.scheduler(ticket.arm).name, "none", "reject").inc()
        if ticket.attempts:  # it was served, and came to nothing
            refusal = Refused(504, reject.reason, "given_up")
        else:
            status = 429 if reject.retry_after_s is not None else 400
            refusal = Refused(status, reject.reason, "rejected", None, reject.retry_after_s)
        ticket.reject(refusal)

    def _take_off(self, ticket: Ticket | None) -> None:
        """The scheduler has queued a running call again, and may start it in the same breath."""
        if ticket is None or ticket.replica is None:
            return
        if ticket.streamed:
            self._stays(ticket, ticket.replica)
        else:
            self._requeue(ticket, "preempted")
            ticket.interrupt("preempted")

    def _stays(self, ticket: Ticket, replica: Replica) -> None:
        """A call that has streamed cannot be taken back, whatever was decided: the scheduler's book follows."""
        self.arms.scheduler(ticket.arm).placed(ticket.call.id, replica.id, self.clock.now())

    def _interrupt(self, call_id: str, reason: str) -> None:
        ticket = self.tickets.get(call_id)
        if ticket is not None and not ticket.streamed:
            ticket.interrupt(reason)

    # ---- bookkeeping ----------------------------------------------------------------------------------------------

    def _wait(self, ticket: Ticket) -> None:
        self.waiting_calls += 1
        self.waiting_bytes += ticket.size_bytes

    def _leave_queue(self, ticket: Ticket) -> None:
        self.waiting_calls -= 1
        self.waiting_bytes -= ticket.size_bytes

    def _ended(self, ticket: Ticket, record: CallRecord) -> None:
        self.over += 1
        if self.live is not None:
            self.live.ended(record, self.clock.now())
        self.on_ended(ticket, record)

    def _requeue(self, ticket: Ticket, reason: str) -> Replica:
        """From its replica back to where calls wait."""
        replica = self._free(ticket)
        self.metrics.redispatched.labels(self.name, reason).inc()
        self._wait(ticket)
        if self.live is not None:
            self.live.waits(ticket.call.id)
        return replica

    def _free(self, ticket: Ticket) -> Replica:
        """Take the ticket off its replica."""
        found = ticket.replica
        assert found is not None
        found.in_flight -= 1
        if found.leaving and found.in_flight == 0:
            self._dirty = True
        with contextlib.suppress(asyncio.InvalidStateError):
            ticket.bound.cancel()
        ticket.unbind()
        return found

    def _learn(self, ticket: Ticket, status: Status) -> None:
        """Tokens per character of prompts, from the usage that servers report."""
        if status == "ok" and ticket.prompt_tokens and ticket.call.prompt_tokens > 0:
            ratio = ticket.prompt_tokens / ticket.call.prompt_tokens
            self.tokens_per_char *= min(max(ratio, 0.5), 2.0) ** 0.02


def _told(receipt: Receipt, earlier: list[str]) -> Receipt:
    """The receipt, with the replicas on which the call was tried before."""
    return replace(receipt, reason=f"{receipt.reason}; sent again after {', '.join(earlier)}") if earlier else receipt

"""Which scheduler queues a call: all the same one, a canary's share another one, or a plain one under watch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarmx.adapters.gateway.trial import Comparison, Shadow
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Prediction, ReplicaState

MAIN, PLAIN = "swarmx", "plain"


@dataclass
class Arms:
    """acting : the schedulers that decide, by arm; share : of workflows that the arm "swarmx" serves

    shadow : one that watches
    """

    acting: dict[str, Scheduler]
    share: float = 1.0
    shadow: Shadow | None = None
    comparison: Comparison = field(default_factory=Comparison)

    def schedulers(self) -> Iterator[Scheduler]:
        yield from self.acting.values()

    def scheduler(self, arm: str) -> Scheduler:
        return self.acting[arm]

    def arm_of(self, call: Call) -> str:
        """The arm of a call: by its workflow, so that a workflow is not split, and the same in every gateway."""
        if len(self.acting) == 1:
            return next(iter(self.acting))
        draw = (zlib.crc32(call.workflow.encode()) + 0.5) / 2**32
        return MAIN if draw < self.share else PLAIN

    # ---- observations, each to whom it concerns -------------------------------------------------------------------

    def arrive(self, arm: str, call: Call, prediction: Prediction | None, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.arrive(call, prediction, now)
        return self.acting[arm].arrive(call, prediction, now)

    def predicted(self, arm: str, call_id: str, prediction: Prediction, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.note(self.shadow.scheduler.predicted(call_id, prediction, now))
        return self.acting[arm].predicted(call_id, prediction, now)

    def placed(self, call_id: str, replica: str, now: float) -> None:
        if self.shadow is not None:
            self.shadow.placed(call_id, replica, now)

    def started(self, arm: str, call_id: str, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.scheduler.started(call_id, now)
        return self.acting[arm].started(call_id, now)

    def progress(self, arm: str, call_id: str, tokens: float, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.scheduler.progress(call_id, tokens, now)
        return self.acting[arm].progress(call_id, tokens, now)

    def refused(self, arm: str, call_id: str, state: ReplicaState, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.note(self.shadow.scheduler.refused(call_id, state, now))
        return self.acting[arm].refused(call_id, state, now)

    def finished(self, arm: str, record: CallRecord, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.finished(record, now)
        if len(self.acting) > 1 and record.status == "ok":
            self.comparison.add(arm, record.workflow_id or record.call_id, now - record.arrival_s)
        return self.acting[arm].finished(record, now)

    def replicas_changed(self, states: Sequence[ReplicaState], now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.replicas_changed(states, now)
        return [d for s in self.acting.values() for d in s.replicas_changed(states, now)]

    def tick(self, now: float) -> list[Decision]:
        if self.shadow is not None:
            self.shadow.note(self.shadow.scheduler.tick(now))
        return [d for s in self.acting.values() for d in s.tick(now)]

    def report(self) -> dict[str, Any] | None:
        """What the trial shows so far; None when nothing is on trial."""
        if self.shadow is not None:
            return {"mode": "shadow", **self.shadow.report()}
        if len(self.acting) > 1:
            return {"mode": "canary", "share": self.share, **self.comparison.report(MAIN, PLAIN)}
        return None

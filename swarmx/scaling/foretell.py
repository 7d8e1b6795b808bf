"""From workflows' events to forecasts in the book of live work: states, predictions in batches, slot-seconds.

The learned forecast (`swarmx.predict.downstream`) says how many output tokens a workflow still holds for each model;
without one, `LiveWork` counts every call as its type's average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from swarmx.predict.downstream import ModelOutlook, Outlook
from swarmx.predict.workflow_state import Observed, Step, WorkflowState
from swarmx.scaling.live import LiveWork
from swarmx.types import Call, CallRecord, Prediction

IDLE_S = 600.0  # a workflow without a live call is forgotten after this time without an event


class Forecaster(Protocol):
    """What `DownstreamPredictor` offers."""

    def predict_all(self, states: Sequence[WorkflowState]) -> list[Outlook]:
        """An outlook for each state; never raises."""


@dataclass
class Foreteller:
    """Told of every call's arrival and end; `tell` then predicts for the workflows that changed, all at once.

    token_s : model -> slot-seconds of one output token; a model that it does not name is not foreseen
    at_events : the forecaster was taught at events, as `swarmx train` does: what an event releases is still to come
        there. It is asked of the last event, and calls that have come since are taken off, each as the model's mean
    """

    forecaster: Forecaster
    token_s: Mapping[str, float]
    at_events: bool = False
    states: dict[str, WorkflowState] = field(default_factory=dict)
    _events: dict[str, WorkflowState] = field(default_factory=dict)
    _seen_s: dict[str, float] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)

    def arrived(self, call: Call, expected: Prediction | None, now: float) -> None:
        """A call has been released. expected : what was predicted of it, where it was"""
        step, known = Step.of(call, expected), self.states.get(call.workflow)
        state = WorkflowState.begin(step) if known is None else known.arrived(step)
        self._put(call.workflow, state, now, is_event=known is None)

    def ended(self, record: CallRecord, now: float) -> None:
        """A call is over, in any way."""
        name = record.workflow_id or record.call_id
        if (known := self.states.get(name)) is not None:
            self._put(name, known.finished(record.call_id, float(record.output_tokens)), now, is_event=True)

    def tell(self, live: LiveWork, now: float) -> int:
        """Hand forecasts of the workflows that changed to the book of live work; returns how many they were."""
        names, states = self.asked(now)
        self.told(live, names, self.forecaster.predict_all(states))
        return len(names)

    def asked(self, now: float) -> tuple[list[str], list[WorkflowState]]:
        """Workflows that changed since this was called last, and what the forecaster is to be asked of each."""
        for name in list(takewhile(lambda n: self._seen_s[n] < now - IDLE_S, self._seen_s)):  # longest unseen first
            if all(step.output_tokens is not None for step in self.states[name].steps):
                del self.states[name], self._seen_s[name], self._events[name]
                self._changed.pop(name, None)
        names = list(self._changed)
        self._changed.clear()
        return names, [(self._events if self.at_events else self.states)[name] for name in names]

    def told(self, live: LiveWork, names: Sequence[str], outlooks: Sequence[Outlook]) -> None:
        """The forecaster's answers, in the same order; they may be a little late."""
        for name, outlook in zip(names, outlooks, strict=True):
            if name not in self.states:
                continue
            come = self._come_since(name)
            work = {
                m: found.work.scaled(self.token_s[m] * _left(found, come[m]))
                for m, found in outlook.models.items()
                if m in self.token_s
            }
            live.foresee(name, work)

    def _come_since(self, name: str) -> Counter[str]:
        """Calls of each model that have arrived since the event that the forecaster was asked of."""
        if not self.at_events:
            return Counter()
        before = {step.id for step in self._events[name].steps}
        return Counter(step.model for step in self.states[name].steps if step.id not in before)

    def _put(self, name: str, state: WorkflowState, now: float, is_event: bool) -> None:
        self.states[name] = state
        if is_event:
            self._events[name] = state
        self._seen_s.pop(name, None)
        self._seen_s[name] = now
        self._changed[name] = None


def _left(found: ModelOutlook, come: int) -> float:
    """Share of the foreseen calls that has not come yet."""
    calls = float(found.calls.mean())
    return 1.0 if not come else max(1.0 - come / calls, 0.0) if calls > 0 else 0.0


def states_between(records: Sequence[CallRecord], states: Sequence[Observed], lag_s: float) -> list[Observed]:
    """The same states, looked at `lag_s` after their events: what has been released by then is live, not coming.

    A scaler asks between events, when the calls that an event released are known; a forecast that was learned from
    the events alone would count them twice. States at which another call has ended meanwhile are left out.
    """
    out = []
    for state in states:
        event = records[state.event]
        at = (event.arrival_s if state.is_root else (event.finished_s or event.arrival_s)) + lag_s
        if any((end := records[i].finished_s) is not None and end <= at for i in state.live):
            continue
        come = tuple(i for i in state.coming if records[i].arrival_s <= at)
        left = tuple(i for i in state.coming if records[i].arrival_s > at)
        out.append(
            Observed(state.root, state.event, state.is_root, state.finished, (*state.live, *come), left, state.released)
        )
    return out

"""From workflows' events to forecasts in the book of live work: states, predictions in batches, slot-seconds.

The learned forecast (`swarmx.predict.downstream`) says how many output tokens a workflow still holds for each model;
without one, `LiveWork` counts every call as its type's average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swarmx.predict.downstream import Outlook
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
    """

    forecaster: Forecaster
    token_s: Mapping[str, float]
    states: dict[str, WorkflowState] = field(default_factory=dict)
    _seen_s: dict[str, float] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)

    def arrived(self, call: Call, expected: Prediction | None, now: float) -> None:
        """A call has been released. expected : what was predicted of it, where it was"""
        step, known = Step.of(call, expected), self.states.get(call.workflow)
        self._put(call.workflow, WorkflowState.begin(step) if known is None else known.arrived(step), now)

    def ended(self, record: CallRecord, now: float) -> None:
        """A call is over, in any way."""
        name = record.workflow_id or record.call_id
        if (known := self.states.get(name)) is not None:
            self._put(name, known.finished(record.call_id, float(record.output_tokens)), now)

    def tell(self, live: LiveWork, now: float) -> int:
        """Hand forecasts of the workflows that changed to the book of live work; returns how many they were."""
        names = list(self._changed)
        for name, outlook in zip(names, self.forecaster.predict_all([self.states[n] for n in names]), strict=True):
            work = {m: found.work.scaled(self.token_s[m]) for m, found in outlook.models.items() if m in self.token_s}
            live.foresee(name, work)
        self._changed.clear()
        for name in [n for n, at in self._seen_s.items() if at < now - IDLE_S]:
            if all(step.output_tokens is not None for step in self.states[name].steps):
                del self.states[name], self._seen_s[name]
        return len(names)

    def _put(self, name: str, state: WorkflowState, now: float) -> None:
        self.states[name] = state
        self._seen_s.pop(name, None)
        self._seen_s[name] = now
        self._changed[name] = None


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

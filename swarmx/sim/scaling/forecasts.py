"""Who foresees what a live workflow still holds: learned from a log, with and without the prompt, or the truth.

Synthetic calls have no text. What a prompt would tell of them, the arm `Calibrated` does: the knowable part of each
call's length, and `RHO2` of the log variance of what the workflow holds after its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swarmx.predict.downstream import ModelOutlook, Outlook
from swarmx.predict.state_features import expected_logs
from swarmx.predict.workflow_state import WorkflowState, observed_states
from swarmx.quantiles import QuantileGrid
from swarmx.scaling.foretell import Forecaster, states_between
from swarmx.sim.arms import Calibrated, cut_tokens
from swarmx.sim.contracts import Arm
from swarmx.sim.workload import SimWorkflow
from swarmx.types import CallRecord

RHO2 = 0.6


@dataclass(frozen=True)
class Forecast:
    """forecaster : of workflows; arm : of single calls, which the forecaster reads as their prompts; token_s : model ->
    slot-seconds of a token"""

    forecaster: Forecaster
    token_s: Mapping[str, float]
    arm: Arm | None = None


Forecasts = Mapping[str, Callable[[], Forecast]]  # by the name of the arm in a report


def learn(
    workflows: Sequence[SimWorkflow], records: Sequence[CallRecord], lag_s: float, arm: Arm | None = None
) -> Forecaster:
    """Fit on the log of these workflows; states are looked at `lag_s` after their events, as a scaler does on average.

    records : of all their calls, in the order of the workflows and of their calls
    """
    from swarmx.predict.downstream_fit import fit_downstream

    said = [] if arm is None else [expected_logs(arm.predict(w, i)) for w in workflows for i in range(len(w.calls))]
    states = states_between(records, observed_states(records), lag_s)
    groups = [record.workflow_id for record in records]
    return fit_downstream(records, states, lambda i: said[i] if said else None, groups)


def calibrated(workflows: Sequence[SimWorkflow]) -> Calibrated:
    """What stands for the prompt."""
    return Calibrated(workflows, RHO2)


class TrueOutlook:
    """What every workflow of a workload truly still holds: the bound for forecasts of live workflows."""

    def __init__(self, workflows: Sequence[SimWorkflow]) -> None:
        self.calls = {
            f"{w.id}/{w.calls[0].key}": [(f"{w.id}/{c.key}", c.model, cut_tokens(c)) for c in w.calls]
            for w in workflows
        }
        self.models = sorted({model for calls in self.calls.values() for _, model, _ in calls})

    def predict_all(self, states: Sequence[WorkflowState]) -> list[Outlook]:
        return [self._outlook(state) for state in states]

    def _outlook(self, state: WorkflowState) -> Outlook:
        here = {step.id for step in state.steps}
        left = [(model, tokens) for name, model, tokens in self.calls[state.steps[0].id] if name not in here]
        models = {
            m: ModelOutlook(
                QuantileGrid.point(float(sum(model == m for model, _ in left))),
                QuantileGrid.point(sum(tokens for model, tokens in left if model == m)),
            )
            for m in self.models
        }
        work = QuantileGrid.point(sum(tokens for _, tokens in left))
        return Outlook(models, work, {}, float(not left), "oracle")

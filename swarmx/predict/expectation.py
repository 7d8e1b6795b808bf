"""All that a model directory expects of one call, gathered for people: tokens, calls and work to come, seconds on every
device, which calls come next, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from swarmx.predict.bundle import read_manifest
from swarmx.predict.downstream import FILE as DOWNSTREAM
from swarmx.predict.downstream import DownstreamPredictor, Outlook
from swarmx.predict.explain import Reason, explain
from swarmx.predict.features import CHARS_PER_TOKEN
from swarmx.predict.runtime import Predictor
from swarmx.predict.seconds import FILE as SECONDS
from swarmx.predict.seconds import SecondsPredictor
from swarmx.predict.text import text_of
from swarmx.predict.workflow_state import Step, WorkflowState
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction, ReplicaState, Source

RUNNING = (0, 3)  # calls that already run on the shown replicas


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Seconds (K,) on a replica of that kind with a free slot, beside so many calls like this one."""

    device: str
    running: int
    seconds: QuantileGrid
    source: Source


@dataclass(frozen=True, slots=True)
class Expectation:
    """devices : empty where the log taught no seconds; outlook : of a workflow that begins with the call, None where
    the log had no workflows or the call has no known type"""

    call: Call
    prediction: Prediction
    reason: Reason
    devices: tuple[OnDevice, ...] = ()
    outlook: Outlook | None = None

    def as_json(self) -> dict[str, Any]:
        rest, outlook = self.prediction.remaining_tokens, self.outlook
        return {
            "levels": self.prediction.tokens.levels.tolist(),
            "tokens": self.prediction.tokens.values.tolist(),
            "downstream": {model: grid.values.tolist() for model, grid in self.prediction.downstream.items()},
            "remaining_tokens": None if rest is None else rest.values.tolist(),
            "source": self.prediction.source,
            "model_version": self.prediction.model_version,
            "why": asdict(self.reason),
            "seconds": [
                {"device": d.device, "running": d.running, "values": d.seconds.values.tolist(), "source": d.source}
                for d in self.devices
            ],
            "next": None if outlook is None else [
                {"type": branch.type, "model": branch.model, "probability": share}
                for branch, share in outlook.branches.items()
            ],
            "none_next": None if outlook is None else outlook.ends,
        }  # fmt: skip


def expectations(
    directory: Path, calls: Sequence[Call], devices: Sequence[str] = (), running: Sequence[int] = RUNNING
) -> list[Expectation]:
    """What the model in that directory expects of each call.

    devices : kinds to show, all of the log's when empty; running : as `OnDevice` has it
    Raises BadInput when the directory holds no usable model.
    """
    predictor, files = Predictor.load(directory), read_manifest(directory)["files"]
    seconds = SecondsPredictor.load(directory) if SECONDS in files else None
    downstream = DownstreamPredictor.load(directory) if DOWNSTREAM in files else None
    out = []
    for call, prediction in zip(calls, predictor.predict(calls), strict=True):
        shown = () if seconds is None else _on_devices(seconds, call, prediction, devices or seconds.devices, running)
        outlook = None
        if downstream is not None and call.type in downstream.vocabulary.labels:
            known = replace(call, prompt_tokens=_prompt_tokens(call))
            outlook = downstream.predict(WorkflowState.begin(Step.of(known, prediction)))
        out.append(Expectation(call, prediction, explain(predictor, call), shown, outlook))
    return out


def _on_devices(
    seconds: SecondsPredictor, call: Call, prediction: Prediction, devices: Sequence[str], running: Sequence[int]
) -> tuple[OnDevice, ...]:
    prompt = _prompt_tokens(call)
    like_this = round(prompt + float(prediction.tokens.at(0.5)) / 2)
    states = [
        ReplicaState(f"{device}/{n}", call.model, device, slots=n + 1, running=n, kv_tokens=n * like_this,
                     kv_capacity_tokens=max((n + 1) * 4 * like_this, 4096))
        for device in devices for n in running
    ]  # fmt: skip
    grid, sources = seconds.predict(prediction.tokens, prompt, states)
    return tuple(
        OnDevice(state.device, state.running, QuantileGrid(grid.levels, grid.values[i]), sources[i])
        for i, state in enumerate(states)
    )


def _prompt_tokens(call: Call) -> int:
    return call.prompt_tokens or round(len(text_of(call.prompt)) / CHARS_PER_TOKEN)

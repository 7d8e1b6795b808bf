"""The serving side of online adaptation: corrects predictions, watches for drift, follows the registry's champion.

Nothing is trained here. A new champion is loaded beside the requests and takes office between two batches of
predictions, together with a monitor and a calibration of its own; one that cannot be loaded changes nothing. Everything
but `predict` runs on the event loop or in `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from swarmx.adapt.calibration import LayeredCalibration
from swarmx.adapt.contest import COVERED, pinball
from swarmx.adapt.model import StoredModel
from swarmx.adapt.registry import Registry, RegistryError, open_registry
from swarmx.adapt.watch import STATUS
from swarmx.adapters.predicting import close
from swarmx.adapters.predictor_process import PredictorProcess
from swarmx.adapters.settings import Positive, Settings
from swarmx.children import command_of
from swarmx.drift import Alarm, DriftMonitor, Figures, Group, group_of
from swarmx.errors import BadInput
from swarmx.predict.budget import Tiers
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Call, CallRecord, Prediction

log = logging.getLogger(__name__)
MOST_OPEN = 100_000  # calls in flight whose raw prediction is remembered
WINDOW = 500  # latest calls over which loss and coverage are shown
NOTED = 1.1  # a type counts as corrected when its lengths are, by more than this factor
RESTART_S = 30.0  # before a trainer that has ended is started again
FIGURES = {
    "model_swaps": "Models taken over while running",
    "models_refused": "Champions of the registry that could not be loaded",
    "drift_alarms": "Alarms of the drift monitor",
    "calibration_rescaled": "Call types whose predictions are corrected by more than a tenth",
    "retraining": "1 while the trainer that publishes here retrains",
    "prediction_loss": "Pinball loss of the latest predictions as served, in tokens",
}


class AdaptationSettings(Settings):
    """What happens when predictions get worse.

    kind : "none", or "tail_loss": watch the tail losses, correct online, follow a registry
    models : the registry, a directory (or sqlite:///mlflow.db) into which a trainer publishes; None follows nothing
    calibrate : correct served predictions online; false_alarms_per_100k : of the monitor
    every_s : between two looks at the registry
    trainer : "external" for one that somebody runs (`swarmx adapt --watch`), "process" to start it here, at low
        priority; it needs models and log.directory, and log.prompt "keep" or "embed" to learn from
    """

    kind: Literal["none", "tail_loss"] = "none"
    models: str | None = None
    calibrate: bool = True
    false_alarms_per_100k: Positive = 1.0
    every_s: Annotated[float, Field(ge=0.1)] = 5.0
    trainer: Literal["external", "process"] = "external"

    @model_validator(mode="after")
    def _fits(self) -> AdaptationSettings:
        if self.trainer == "process" and self.models is None:
            raise ValueError("trainer 'process' needs models, the directory into which it publishes")
        return self


@dataclass
class Office:
    """A model in use, with what is known of it.

    predicts : the model's predictor, or its process; latest : (loss, covered levels) of its latest calls
    """

    model: StoredModel
    predicts: Tiers
    monitor: DriftMonitor | None
    calibration: LayeredCalibration = field(default_factory=LayeredCalibration)
    latest: deque[tuple[float, tuple[bool, ...]]] = field(default_factory=lambda: deque(maxlen=WINDOW))


class Adapting:
    """A predictor that adapts. `predict` may run in a thread of its own; `finished` takes every call that is over."""

    def __init__(
        self,
        settings: AdaptationSettings,
        model: StoredModel,
        registry: Registry | None = None,
        own_process: bool = False,
    ) -> None:
        self.settings, self.registry, self.own_process = settings, registry, own_process
        self.office = self._office(model)
        self.swaps = self.refused = 0
        self.alarms: dict[Group, int] = {}
        self._open: OrderedDict[str, tuple[Office, QuantileGrid]] = OrderedDict()
        self._tried = ""

    @classmethod
    def open(cls, settings: AdaptationSettings, first: Path, own_process: bool = False) -> Adapting:
        """The registry's champion, or the model `first` while it has none. Raises BadInput when neither can be used.

        own_process : each model in office predicts in one
        """
        registry = None if settings.models is None else open_registry(settings.models)
        model = None
        if registry is not None:
            try:
                version = registry.get("champion")
                model = None if version is None else StoredModel.load(registry.path(version))
            except (RegistryError, BadInput) as problem:
                log.warning("the registry's champion is not used for now: %s", problem)
        return cls(settings, model or StoredModel.load(first), registry, own_process)

    @property
    def version(self) -> str:
        return self.office.model.version

    # ---- calls ----

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        """Predictions of one and the same model, corrected."""
        office = self.office
        said = office.predicts.predict(calls)
        return [self._corrected(office, call, one) for call, one in zip(calls, said, strict=True)]

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        """By the calls' types alone, which takes microseconds; neither corrected nor watched for drift."""
        return self.office.predicts.fallback_for(calls)

    def _corrected(self, office: Office, call: Call, said: Prediction) -> Prediction:
        self._open[call.id] = (office, said.tokens)
        if len(self._open) > MOST_OPEN:
            with contextlib.suppress(KeyError):
                self._open.popitem(last=False)
        if not self.settings.calibrate or said.source != "neural":
            return said
        grid = office.calibration.corrected(said.tokens, (call.type or "", call.model, ""))
        if call.max_tokens is not None:
            grid = QuantileGrid(LEVELS, np.minimum(grid.values, float(call.max_tokens)))
        return replace(said, tokens=grid)

    def finished(self, record: CallRecord) -> Alarm | None:
        """A call is over, in any status; the alarm that it raises, if any."""
        office, grid = self._open.pop(record.call_id, (None, None))
        if office is None or grid is None or record.status != "ok":
            return None
        group, tokens = group_of(record), float(record.output_tokens)
        now = record.arrival_s if record.finished_s is None else record.finished_s
        served = office.calibration.corrected(grid, group).values if self.settings.calibrate else grid.values
        office.latest.append((pinball(served, tokens), tuple(bool(tokens <= served[k]) for k in COVERED)))
        office.calibration.observe(group, grid, tokens)
        alarm = None if office.monitor is None else office.monitor.observe(group, grid, tokens, now)
        if alarm is not None:
            self.alarms[alarm.group] = self.alarms.get(alarm.group, 0) + 1
            log.warning("drift of %s: %s", " ".join(alarm.group), alarm.reason)
        return alarm

    def snapshot(self) -> dict[Group, Figures]:
        """Window figures per group, of the model in office."""
        return {} if self.office.monitor is None else self.office.monitor.snapshot()

    # ---- versions ----

    async def follow(self) -> None:
        """Take over the registry's champion whenever it changes; never returns."""
        while self.registry is not None:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(self.settings.every_s)

    def look(self) -> bool:
        """One look at the registry; True when another model took office."""
        if self.registry is None:
            return False
        try:
            version = self.registry.get("champion")
            if version is None or version in (self.version, self._tried):
                return False
            office = self._office(StoredModel.load(self.registry.path(version)))
        except RegistryError as problem:
            log.warning("the registry is not followed for now: %s", problem)
            return False
        except BadInput as problem:
            self._tried, self.refused = version or "", self.refused + 1
            log.warning("version %s is not used: %s", version, problem)
            return False
        before, self.office, self.swaps, self._tried = self.office, office, self.swaps + 1, ""
        close(before.predicts)
        log.info("model version %s is in office", self.version)
        return True

    def _office(self, model: StoredModel) -> Office:
        rate = self.settings.false_alarms_per_100k
        monitor = None if model.reference is None else DriftMonitor(model.reference, false_alarms_per_100k=rate)
        own = PredictorProcess(model.predictor, model.directory) if self.own_process else model.predictor
        return Office(model, own, monitor)

    def close(self) -> None:
        """End what has been started for the model in office."""
        close(self.office.predicts)

    # ---- figures ----

    def figures(self) -> dict[str, float]:
        """For metrics pages, names without prefix. The loss is that of the latest calls as served."""
        latest = list(self.office.latest)
        out = {
            "model_swaps": float(self.swaps), "models_refused": float(self.refused),
            "drift_alarms": float(sum(self.alarms.values())),
            "calibration_rescaled": float(self._rescaled()),
            "retraining": float(self._trainer().get("retraining", False)),
        }  # fmt: skip
        if latest:
            out["prediction_loss"] = float(np.mean([loss for loss, _ in latest]))
        return out

    def _rescaled(self) -> int:
        factors = self.office.calibration.own.factors().values()
        return sum(not 1 / NOTED <= factor <= NOTED for factor in list(factors))

    def coverage(self) -> dict[str, float]:
        """Level -> share of the latest calls no longer than that quantile, as served; empty before the first."""
        latest = list(self.office.latest)
        if not latest:
            return {}
        shares = np.mean([covered for _, covered in latest], axis=0)
        return {f"{LEVELS[k]:g}": float(share) for k, share in zip(COVERED, shares, strict=True)}

    def _trainer(self) -> dict[str, Any]:
        """What the trainer last said of itself; empty without one nearby."""
        if self.settings.models is None or "://" in self.settings.models:
            return {}
        try:
            found = json.loads((Path(self.settings.models) / STATUS).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


async def run_trainer(settings: AdaptationSettings, records: Path, first: Path) -> None:
    """`swarmx adapt --watch` as a child of this process, started again when it ends; never returns."""
    command = [*command_of("swarmx.cli"), "adapt", "--watch", str(records)]
    command += ["--models", str(settings.models), "--model", str(first), "--parent", str(os.getpid())]
    while True:
        started = time.monotonic()
        child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        try:
            await child.wait()
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()
        log.warning("the trainer has ended with %s; another one follows", child.returncode)
        await asyncio.sleep(max(1.0, RESTART_S - (time.monotonic() - started)))

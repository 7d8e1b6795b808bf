"""What the loop is told and what it tells: its configuration, its events, the outcome of a call, the rival."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from swarmx.adapt.calibration import LayeredCalibration
from swarmx.adapt.contest import Contest, Probation
from swarmx.adapt.model import Model
from swarmx.adapt.retrain import Plan
from swarmx.drift import Group


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """false_alarms_per_100k : of the monitor; material : change that is worth an alarm, see `DriftMonitor`

    fresh : calls after an alarm that a retraining waits for; pause : calls between two retrainings, doubled after each
        that did not help; every : retrain after so many calls even without an alarm, None never
    first : calls from which the reference is taken where the model came without one
    alpha, margin, most : of the contest; window : of the probation
    rows, limit_bytes, half_life : of the reservoir; quiet_s : when a workflow is over
    plan : of the fit, `Plan.of` the calls where None
    failures : retrainings of the head in vain after which a new encoder is called for
    """

    false_alarms_per_100k: float = 1.0
    material: float = 1.1
    fresh: int = 150
    pause: int = 500
    every: int | None = None
    first: int = 500
    alpha: float = 0.01
    margin: float = 0.1
    most: int = 2000
    window: int = 300
    rows: int = 100_000
    limit_bytes: int = 200 << 20
    half_life: float = 50_000.0
    quiet_s: float = 60.0
    failures: int = 2
    plan: Plan | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """seq, at : of the record at which it happened; kind : alarm, retrain, failed, challenger, promoted, rejected,
    kept, rolled_back, champion, encoder, registry; version : concerned, if any; detail : reason and figures"""

    seq: int
    at: float
    kind: str
    version: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished call: pinball loss (mean over levels, tokens) of the champion raw and as served, which levels of
    `contest.COVERED` held as served, and the version that was champion."""

    seq: int
    at: float
    group: Group
    version: str
    raw: float
    served: float
    covered: tuple[bool, ...]


@dataclass
class Rival:
    """Who is compared with the champion on every record: a challenger, or the former champion after a promotion."""

    model: Model
    trial: Contest | Probation
    calibration: LayeredCalibration = field(default_factory=LayeredCalibration)

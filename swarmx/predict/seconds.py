"""Seconds that a call would take on each candidate replica, from its predicted tokens and how busy each one is.

    tokens (K,) --engine: wait for a slot + prefill + tokens tau(n, kv)--> seconds (R, K)
    --learned correction of the logarithm, by device kind and state--> --calibration by device kind and queue-->

Seconds run from the dispatch to the last token, time in the replica's own queue included. One array operation over all
replicas; numpy only. A device that the log did not have borrows the constants and corrections of all of them, at its
configured speed, its quantiles widened by how much known kinds differ, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.predict.borrow import spread, widened
from swarmx.predict.bundle import read_json, read_manifest
from swarmx.predict.calibrate import Calibration, ordered
from swarmx.predict.situations import MOST, Situations
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import ReplicaState, Source

Array = NDArray[np.float64]
FILE = "seconds.json"
POOL = ""  # name of what was learned from all devices
STATE = ("one", "running", "waiting", "kv_share", "prompt", "tokens")  # of the correction; logs but for the KV share
FLOOR_S = 1e-3


@dataclass(frozen=True, slots=True)
class Expected:
    """What the engine's formula says, (R, K) seconds, and the features of its correction, (R, len(STATE))."""

    seconds: Array
    state: Array


@dataclass(frozen=True, slots=True)
class SecondsPredictor:
    """Build it with `load`.

    constants : per device kind, `POOL` for unknown ones; weights : likewise, (len(STATE),) of the log correction, a
    device's own on top of the pool's; calibrations : of "device" and "device queued", `POOL` where those are missing
    mean_tokens : of the log's answers, for the wait behind others; largest_s : longest ever seen
    """

    constants: Mapping[str, EngineConstants]
    weights: Mapping[str, Array]
    calibrations: Mapping[str, Calibration]
    mean_tokens: float
    largest_s: float
    version: str = ""

    @classmethod
    def load(cls, directory: str | Path) -> SecondsPredictor:
        """Read `seconds.json` of a model directory. Raises BadInput when the directory is unusable or has none."""
        directory = Path(directory)
        manifest = read_manifest(directory)
        if FILE not in manifest["files"]:
            raise BadInput(
                f"{directory} has no {FILE}: its log had no devices or no times, or the model is older; train again on "
                "a log with device, dispatched_s and finished_s"
            )
        try:
            return cls.of_json(read_json(directory / FILE), manifest["version"])
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadInput(f"{directory / FILE} is not usable ({problem!r}); train the model again") from None

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(name for name in self.constants if name != POOL)

    def predict(
        self, tokens: QuantileGrid, prompt_tokens: float, states: Sequence[ReplicaState], cached: ArrayLike = 0.0
    ) -> tuple[QuantileGrid, tuple[Source, ...]]:
        """Seconds of one call on each replica, (R, K), and where each row comes from.

        tokens : (K,) on `LEVELS`; cached : prompt tokens that each replica holds, (R,) or one number
        """
        values = np.broadcast_to(np.clip(tokens.values, 0.0, MOST), (len(states), len(LEVELS)))
        prompt = min(prompt_tokens, MOST) if prompt_tokens >= 0 else 0.0
        held = np.clip(np.nan_to_num(np.asarray(cached, dtype=float)), 0.0, prompt)
        found = self.seconds(values, np.broadcast_to(prompt - held, len(states)), Situations.of(states))
        sources: list[Source] = ["neural" if state.device in self.constants else "borrowed" for state in states]
        return QuantileGrid(LEVELS, found), tuple(sources)

    def seconds(self, tokens: Array, uncached: Array, at: Situations) -> Array:
        """(R, K) calibrated seconds of token quantiles (R, K) with so many prompt tokens to prefill (R,)."""
        if not len(at.devices):
            return np.zeros((0, len(LEVELS)))
        logs = self.logs(self.expected(tokens, uncached, at), at)
        groups = [self.group_of(device, queued) for device, queued in zip(at.devices, is_queued(at), strict=True)]
        for name in set(groups):
            rows = np.array([group == name for group in groups])
            logs[rows] = self.calibrations[name].apply(logs[rows])
        borrowed = np.array([device not in self.constants for device in at.devices])
        logs[borrowed] = widened(logs[borrowed], self.spread)
        top = np.log(4 * self.largest_s + 4)
        return np.asarray(np.exp(ordered(np.clip(logs, np.log(FLOOR_S), top))))

    @property
    def spread(self) -> float:
        """Standard deviation of the log speed of a device kind that was never seen, from those that were."""
        tau = [self.constants[name].a + self.constants[name].b for name in self.devices]
        return spread(np.log(np.maximum(tau, 1e-12)))

    def expected(self, tokens: Array, uncached: Array, at: Situations) -> Expected:
        """The engine's own answer: releases to wait for, prefill, then tau(n, kv) a token, all at the state now."""
        a, b, c, p = np.array([self._constants_at(d, s) for d, s in zip(at.devices, at.speed, strict=True)]).T
        batch = np.minimum(at.running + 1, at.slots)
        middle = tokens[:, MEDIAN]
        kv = np.minimum(at.kv + uncached + middle / 2, np.maximum(at.kv_capacity, at.kv))
        tau = a + b * batch + c * kv
        releases = np.maximum(at.running + at.waiting + 1 - at.slots, 0.0)
        wait = releases * self.mean_tokens * tau / at.slots
        seconds = (wait + p * uncached)[:, None] + np.maximum(tokens, 1.0) * tau[:, None]
        share = np.clip(at.kv / np.maximum(at.kv_capacity, 1.0), 0.0, 1.0)
        columns = (np.ones(len(middle)), np.log1p(at.running), np.log1p(at.waiting), share,
                   np.log1p(uncached) / 8, np.log1p(middle) / 8)  # fmt: skip
        return Expected(np.maximum(seconds, FLOOR_S), np.stack(columns, axis=1))

    def logs(self, expected: Expected, at: Situations) -> Array:
        """Corrected log seconds, (R, K), before calibration."""
        none = np.zeros(len(STATE))
        weights = np.array([self.weights[POOL] + self.weights.get(device, none) for device in at.devices])
        return np.asarray(np.log(expected.seconds) + (expected.state * weights).sum(axis=1, keepdims=True))

    def group_of(self, device: str, queued: bool) -> str:
        """Name of the calibration for a device kind and whether the call would queue there."""
        names = (f"{device} queued" if queued else device, " queued" if queued else POOL, POOL)
        return next(name for name in names if name in self.calibrations)

    def _constants_at(self, device: str, speed: float) -> tuple[float, float, float, float]:
        known = self.constants.get(device)
        return known.as_tuple() if known else self.constants[POOL].at_speed(speed).as_tuple()

    def as_json(self) -> dict[str, Any]:
        return {
            "constants": {name: list(c.as_tuple()) for name, c in self.constants.items()},
            "state": list(STATE),
            "weights": {name: w.tolist() for name, w in self.weights.items()},
            "calibrations": {name: c.as_json() for name, c in self.calibrations.items()},
            "mean_tokens": self.mean_tokens,
            "largest_s": self.largest_s,
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any], version: str = "") -> SecondsPredictor:
        """Raises KeyError, TypeError, ValueError or AttributeError when the data are not what `as_json` wrote."""
        constants = {str(name): EngineConstants(*map(float, row)) for name, row in data["constants"].items()}
        weights = {str(name): np.array(row, dtype=float).reshape(len(STATE)) for name, row in data["weights"].items()}
        calibrations = {str(name): Calibration.of_json(c) for name, c in data["calibrations"].items()}
        numbers = [*(x for c in constants.values() for x in c.as_tuple()), *(x for w in weights.values() for x in w)]
        if POOL not in constants or POOL not in weights or POOL not in calibrations or not np.all(np.isfinite(numbers)):
            raise ValueError("constants, weights and a calibration of the pool are needed, all finite")
        return cls(constants, weights, calibrations, float(data["mean_tokens"]), float(data["largest_s"]), version)


MEDIAN = int(np.searchsorted(LEVELS, 0.5))


def is_queued(at: Situations) -> NDArray[np.bool_]:
    """Whether a call sent now would wait for a slot there, (R,)."""
    return np.asarray((at.waiting > 0) | (at.running >= at.slots))

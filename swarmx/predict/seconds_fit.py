"""Learning seconds from a log: engine constants per device kind, the correction by state, calibration; numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants, LeastSquares, Segment
from swarmx.predict.baselines import fit_groups
from swarmx.predict.calibrate import Calibration, calibrate
from swarmx.predict.metrics import report
from swarmx.predict.seconds import POOL, STATE, SecondsPredictor, is_queued
from swarmx.predict.situations import Situations, recorded, segments
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
FEWEST = 100  # timed calls below which nothing is said about seconds
PRIOR_ROWS = 20.0  # calls that the pool's constants count as when a device's own are fitted
POOL_RIDGE, OWN_RIDGE = 1.0, 10.0
GROUP_ROWS = 100  # calls of a device, queued or not, before it has a calibration of its own


def fit_seconds(calls: Sequence[CallRecord], tokens: Array) -> SecondsPredictor:
    """Learn from timed calls.

    tokens : (N, K) predicted quantiles of each call's output tokens, by a predictor that had not seen it: calibration
        on anything better would promise too much
    Raises ValueError when the log identifies no engine.
    """
    at, observed = recorded(calls), _observed(calls)
    uncached = _uncached(calls)
    constants = _constants(segments(calls, at), at.devices)
    nothing = np.zeros(len(STATE))
    mean = float(np.mean([call.output_tokens for call in calls]))
    bare = SecondsPredictor(constants, {POOL: nothing}, {}, mean, float(np.exp(observed.max())))
    true = np.repeat(np.array([[float(call.output_tokens)] for call in calls]), len(LEVELS), axis=1)
    engine = bare.expected(true, uncached, at)
    weights = _corrections(engine.state, observed - np.log(engine.seconds[:, 0]), at.devices)
    found = SecondsPredictor(constants, weights, {}, mean, bare.largest_s)
    logs = found.logs(found.expected(tokens, uncached, at), at)
    return SecondsPredictor(constants, weights, _calibrations(logs, observed, calls, at), mean, bare.largest_s)


def _observed(calls: Sequence[CallRecord]) -> Array:
    """Log seconds from dispatch to end, (N,)."""
    return np.log([float(call.finished_s or 0.0) - float(call.dispatched_s or 0.0) for call in calls])


def _uncached(calls: Sequence[CallRecord]) -> Array:
    return np.array([float(max(call.prompt_tokens - call.cached_tokens, 0)) for call in calls])


def _constants(stretches: Sequence[Segment], devices: Sequence[str]) -> dict[str, EngineConstants]:
    """Of the pool, and of each kind with the pool's as a weak prior."""
    pool = LeastSquares(half_life=1e12)
    kinds: dict[str, LeastSquares] = {}
    for segment, device in zip(stretches, devices, strict=True):
        if segment.tokens > 0:
            pool.add(segment, 1.0)
            kinds.setdefault(device, LeastSquares(half_life=1e12)).add(segment, 1.0)
    whole = pool.solve()
    if whole is None:
        raise ValueError(f"{len(stretches)} calls do not identify an engine: no tokens or no time passed")
    prior = PRIOR_ROWS * pool.information()
    return {POOL: whole, **{name: kind.solve(whole, prior) or whole for name, kind in sorted(kinds.items())}}


def _corrections(state: Array, gaps: Array, devices: Sequence[str]) -> dict[str, Array]:
    """Ridge of the log gap on the state: one set of weights for all, one more per device, drawn harder to 0."""
    names = sorted(set(devices))
    own = np.array([[device == name for name in names] for device in devices], dtype=float)
    design = np.hstack((state, (own[:, :, None] * state[:, None, :]).reshape(len(state), -1)))
    ridge = np.concatenate((np.full(len(STATE), POOL_RIDGE), np.full(len(names) * len(STATE), OWN_RIDGE)))
    low, high = np.quantile(gaps, (0.005, 0.995))  # a stall of minutes is for the calibration, not for the mean
    weights = np.linalg.solve(design.T @ design + np.diag(ridge), design.T @ np.clip(gaps, low, high))
    rows = weights.reshape(1 + len(names), len(STATE))
    return {POOL: rows[0], **{name: rows[1 + i] for i, name in enumerate(names)}}


def _calibrations(logs: Array, observed: Array, calls: Sequence[CallRecord], at: Situations) -> dict[str, Calibration]:
    """Of all calls, of those that queued, and of each device's, where there are enough."""
    queued = is_queued(at)
    weights = _weights(calls)
    groups: dict[str, NDArray[np.bool_]] = {POOL: np.ones(len(calls), dtype=bool), " queued": queued}
    for name in sorted(set(at.devices)):
        own = np.array([device == name for device in at.devices])
        groups |= {name: own & ~queued, f"{name} queued": own & queued}
    return {
        name: calibrate(logs[rows], observed[rows], weights[rows])
        for name, rows in groups.items() if name == POOL or rows.sum() >= GROUP_ROWS
    }  # fmt: skip


def _weights(calls: Sequence[CallRecord]) -> Array:
    """1 / number of calls with the same prompt on the same device."""
    keys = [f"{call.prompt or call.call_id}\0{call.device}" for call in calls]
    _, place, repeats = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / repeats[place])


def evaluate_seconds(
    predictor: SecondsPredictor, train: Sequence[CallRecord], test: Sequence[CallRecord], tokens: Array
) -> dict[str, Any]:
    """Metrics of timed calls that were not learned from, beside quantiles per type, per type and device, and tokens
    through the engine without correction and calibration.

    tokens : (N, K) predicted for the test calls
    """
    observed = np.exp(_observed(test))
    at, uncached = recorded(test), _uncached(test)
    values = predictor.seconds(tokens, uncached, at)
    seen = np.exp(_observed(train))
    per_type = [call.type for call in train], [call.type for call in test]
    per_device = [(call.type, call.device) for call in train], [(call.type, call.device) for call in test]
    baselines = {
        "unconditional": fit_groups([None] * len(train), seen).values([None] * len(test)),
        "per_type": fit_groups(per_type[0], seen).values(per_type[1]),
        "per_type_device": fit_groups(per_device[0], seen).values(per_device[1]),
        "engine_alone": predictor.expected(tokens, uncached, at).seconds,
    }
    return report(values, observed, baselines)

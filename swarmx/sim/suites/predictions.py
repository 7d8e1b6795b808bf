"""Predictions for a log's own calls, each by a predictor that has not seen the template of the call's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.baselines import fit_groups, keys_of
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import testing_rows
from swarmx.predict.targets import TOKENS, WORK, usable
from swarmx.quantiles import LEVELS, QuantileGrid, pinball_loss
from swarmx.sim.report import Calibration
from swarmx.types import CallRecord, Prediction

Array = NDArray[np.float64]


def unseen_predictions(records: Sequence[CallRecord], model: Path) -> dict[str, Prediction]:
    """Call id -> prediction for every call that ended well.

    Calls of held-out templates are predicted by the model; the others, which it was trained on, by those of its members
    that left the call's template out (kept beside the model).
    Raises BadInput when the model was trained on another log, so that some calls have no such prediction.
    """
    predictor = Predictor.load(model)
    calls = [records[i] for i in usable(records)]
    inside = ~testing_rows(calls)
    if not inside.any() or inside.all():  # nothing could be held out: every row taught the model
        inside = np.ones(len(calls), dtype=bool)
    values = predictor.grids(calls).values  # (N, T, K)
    kept = _out_of_fold(model)
    if kept is not None:
        missing = [call.call_id for call, mine in zip(calls, inside, strict=True) if mine and call.call_id not in kept]
        if missing:
            raise BadInput(
                f"{model} was not trained on this log (call {missing[0]!r} is new to it), so nobody can tell which "
                "templates it has seen; leave --model out to train on the log"
            )
        for i in np.flatnonzero(inside):
            values[i] = kept[calls[i].call_id]
    return {call.call_id: _prediction(call, predictor, values[i]) for i, call in enumerate(calls)}


def _out_of_fold(model: Path) -> dict[str, Array] | None:
    """What the members said of the rows that each had not seen; None for a model without text."""
    path = model / "out_of_fold.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return dict(zip(arrays["call_id"].tolist(), arrays["values"].astype(np.float64), strict=True))


def _prediction(call: CallRecord, predictor: Predictor, values: Array) -> Prediction:
    cap = np.inf if call.max_tokens is None else float(call.max_tokens)
    by_target = {
        name: QuantileGrid(LEVELS, np.maximum.accumulate(np.maximum(values[t], 0.0)))
        for t, name in enumerate(predictor.targets)
    }
    tokens = QuantileGrid(LEVELS, np.minimum(by_target[TOKENS].values, cap))
    return Prediction(tokens, "neural", remaining_tokens=by_target.get(WORK), model_version=predictor.version)


def calibration_of(records: Sequence[CallRecord], model: Path) -> Calibration:
    """Coverage and pinball loss on the held-out templates, beside quantiles per type and of everything."""
    predictor = Predictor.load(model)
    calls = [records[i] for i in usable(records)]
    testing = testing_rows(calls)
    if not testing.any() or testing.all():
        testing = np.ones(len(calls), dtype=bool)
    test = [calls[i] for i in np.flatnonzero(testing)]
    training = [call for call, out in zip(calls, testing, strict=True) if not out] or test
    observed = np.array([call.output_tokens for call in test], dtype=np.float64)
    lengths = np.array([call.output_tokens for call in training], dtype=np.float64)
    grids = {"predictor": predictor.grids(test).of(TOKENS)}
    for name, kind in (("per_type", "per_type"), ("pool", "unconditional")):
        grids[name] = fit_groups(keys_of(training, kind), lengths).values(keys_of(test, kind))
    below = (observed[:, None] <= grids["predictor"]).mean(axis=0)
    losses = {name: pinball_loss(QuantileGrid(LEVELS, v), observed).mean(axis=0) for name, v in grids.items()}
    return Calibration(
        len(test), LEVELS.tolist(), below.tolist(), {name: loss.tolist() for name, loss in losses.items()}
    )

"""A model on rows it was not trained on, beside the baselines fitted on the rows it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.baselines import fit_groups, keys_of
from swarmx.predict.metrics import by_group, report
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import testing_rows
from swarmx.predict.targets import targets, usable
from swarmx.types import CallRecord

BASELINES = ("unconditional", "per_type", "per_type_device")


def evaluate(
    predictor: Predictor, records: Sequence[CallRecord], testing: NDArray[np.bool_] | None = None
) -> dict[str, Any]:
    """Metrics of a model on the test rows of a log, with the calls' types and with them hidden.

    testing : which of the usable rows were kept from training, `split.testing_rows` when not given; where that is none
        or all of them, every row is measured
    Raises ValueError when the log holds no usable row.
    """
    rows = usable(records)
    calls = [records[i] for i in rows]
    wanted = targets(records, rows)
    testing = testing_rows(calls) if testing is None else testing
    if not testing.any() or testing.all():
        testing = np.ones(len(calls), dtype=bool)
    inside = np.flatnonzero(~testing) if not testing.all() else np.arange(len(calls))
    test, train = [calls[i] for i in np.flatnonzero(testing)], [calls[i] for i in inside]
    arms = {"with_type": test, "without_type": [replace(call, type=None) for call in test]}
    grids = {arm: predictor.grids(part) for arm, part in arms.items()}
    out: dict[str, Any] = {"test_rows": len(test), "train_rows": len(train), "targets": {}}
    for t, name in enumerate(wanted.names):
        if name not in predictor.targets:
            continue
        observed, seen = wanted.values[testing, t], wanted.values[inside, t]
        baselines = {kind: fit_groups(keys_of(train, kind), seen).values(keys_of(test, kind)) for kind in BASELINES}
        out["targets"][name] = {arm: report(found.of(name), observed, baselines) for arm, found in grids.items()}
        out["targets"][name]["with_type"]["by_type"] = by_group(
            grids["with_type"].of(name), observed, keys_of(test, "per_type"), baselines["per_type"]
        )
    return out

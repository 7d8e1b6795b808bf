"""The whole loop on the shipped log whose answers double: what of the lost pinball loss comes back, and how soon."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapt.replay import replay, summary
from swarmx.adapt.shift import Shift
from swarmx.logs.table import read_log
from swarmx.predict.fit import FitConfig
from swarmx.predict.train import TrainConfig, train

LOG = Path(__file__).parents[1] / "data" / "execution_log.parquet"
TRAINED, SHIFT = 0.3, "lengths=2@0.33"
SMALL = FitConfig(epochs=6, members=4, left_out=1, landmarks=64, count_landmarks=48)


def recovered(quick: bool) -> dict[str, Any]:
    """A model of the log's first `TRAINED` goes through the rest, as `swarmx adapt` has it.

    recovered_1000 : share of the loss that the shift costs which is won back over the 750th to 1,000th shifted call
    quick : a smaller model
    """
    records = sorted(read_log(LOG), key=lambda r: r.arrival_s if r.finished_s is None else r.finished_s)
    cut = round(TRAINED * len(records))
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model"
        train(records[:cut], model, TrainConfig(SMALL if quick else FitConfig(epochs=20), plots=False))
        found = replay(records[cut:], model, Shift.parse(SHIFT))
    told = summary(found)
    start = found.start or 0
    at = np.arange(start + 750, min(start + 1000, len(found.served)))
    lost = float((found.frozen[at] - found.ideal[at]).sum())
    won = float((found.frozen[at] - found.served[at]).sum())
    return {"recovered_1000": round(won / lost, 4) if len(at) and lost > 0 else None, "shift": SHIFT, **told}

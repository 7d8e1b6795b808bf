"""The whole loop on the shipped log whose answers double half way: what of the lost pinball loss comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapt.replay import replay, summary
from swarmx.adapt.shift import Shift
from swarmx.logs.table import read_log
from swarmx.predict.bundle import shipped

LOG = Path(__file__).parents[1] / "data" / "execution_log.parquet"


def recovered(quick: bool) -> dict[str, Any]:
    """recovered_1000 : share of the loss that the shift costs which is won back over the 750th to 1,000th shifted
    record; the rest as `swarmx adapt` tells it. quick : the first half of the log"""
    records = read_log(LOG)
    if quick:
        records = records[: len(records) // 2]
    found = replay(records, shipped(), Shift.parse("lengths=2@0.3"))
    told = summary(found)
    start = found.start or 0
    at = np.arange(start + 750, min(start + 1000, len(found.served)))
    lost = float((found.frozen[at] - found.ideal[at]).sum())
    won = float((found.frozen[at] - found.served[at]).sum())
    return {"recovered_1000": round(won / lost, 4) if len(at) and lost > 0 else None, "shift": "lengths=2@0.3", **told}

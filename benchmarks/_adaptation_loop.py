"""The whole loop on the shipped log whose answers double half way: what of the lost pinball loss comes back."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapt.replay import replay, summary
from swarmx.adapt.shift import Shift
from swarmx.logs.table import read_log
from swarmx.predict.bundle import read_manifest, shipped, write_manifest
from swarmx.predict.train import OUT_OF_FOLD, write_reference
from swarmx.types import CallRecord

LOG = Path(__file__).parents[1] / "data" / "execution_log.parquet"


def recovered(quick: bool) -> dict[str, Any]:
    """recovered_1000 : share of the loss that the shift costs which is won back over the 750th to 1,000th shifted
    record; the rest as `swarmx adapt` tells it. quick : the first half of the log"""
    records = read_log(LOG)
    if quick:
        records = records[: len(records) // 2]
    with tempfile.TemporaryDirectory() as place:
        model = with_reference(shipped(), read_log(LOG), Path(place) / "model")
        found = replay(records, model, Shift.parse("lengths=2@0.3"))
    told = summary(found)
    start = found.start or 0
    at = np.arange(start + 750, min(start + 1000, len(found.served)))
    lost = float((found.frozen[at] - found.ideal[at]).sum())
    won = float((found.frozen[at] - found.served[at]).sum())
    return {"recovered_1000": round(won / lost, 4) if len(at) and lost > 0 else None, "shift": "lengths=2@0.3", **told}


def with_reference(model: Path, records: Sequence[CallRecord], copy: Path) -> Path:
    """A copy of a model that was trained before models had a drift.json, with one from its out-of-fold predictions."""
    shutil.copytree(model, copy)
    manifest = read_manifest(copy)
    if "drift.json" not in manifest["files"]:
        kept, by_id = np.load(copy / OUT_OF_FOLD), {record.call_id: record for record in records}
        calls = [by_id[str(call_id)] for call_id in kept["call_id"]]
        write_reference(copy, calls, kept["values"][:, 0].astype(np.float64))
        added = ("kind", "schema", "swarmx", "version", "files")
        write_manifest(copy, {name: value for name, value in manifest.items() if name not in added})
    return copy

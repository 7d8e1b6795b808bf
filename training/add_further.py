"""Give an older model directory what trainings now write beside the heads: outlooks of workflows and seconds.

    python training/add_further.py models/default data/execution_log.parquet

The heads, their calibration and the encoder stay as they are; `downstream.json`, `seconds.json`, the metrics of both
and the manifest are written anew, whole or not at all. The log has to be the one that the model was trained on.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from swarmx.files import replacing_directory
from swarmx.logs.table import read_log
from swarmx.predict.bundle import read_json, read_manifest, write_manifest
from swarmx.predict.further import fit_further
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import testing_rows
from swarmx.predict.targets import usable

WRITTEN = ("kind", "schema", "swarmx", "version", "files")  # by write_manifest itself


def add_further(model: Path, log: Path, out: Path) -> None:
    """Raises BadInput when the directory or the log is unusable."""
    described = {name: value for name, value in read_manifest(model).items() if name not in WRITTEN}
    records = read_log(log)
    calls = [records[i] for i in usable(records)]
    predictor = Predictor.load(model)
    with replacing_directory(out) as directory:
        shutil.copytree(model, directory, dirs_exist_ok=True)
        found = fit_further(directory, calls, testing_rows(calls), predictor)
        metrics = read_json(directory / "metrics.json") | found
        (directory / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
        version = write_manifest(directory, described)
    print(f"{out}: {', '.join(found) or 'nothing to add'}; version {version}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("log", type=Path)
    options.add_argument("--out", type=Path, help="default: in place")
    chosen = options.parse_args()
    add_further(chosen.model, chosen.log, chosen.out or chosen.model)


if __name__ == "__main__":
    main()

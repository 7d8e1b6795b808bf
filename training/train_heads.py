"""Train the heads of models/default on the shipped log, on the encoder that lies there.

    python training/train_heads.py

Writes models/default anew: encoder as it was, heads, calibration, metrics, card. About half a minute on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from swarmx.commands.progress import reporting
from swarmx.logs.table import read_log
from swarmx.predict.fit import FitConfig
from swarmx.predict.picture import print_metrics
from swarmx.predict.train import TrainConfig, train

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--log", type=Path, default=ROOT / "data" / "execution_log.parquet")
    options.add_argument("--out", type=Path, default=ROOT / "models" / "default")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    with reporting() as progress:
        metrics = train(read_log(chosen.log), chosen.out, TrainConfig(fit=FitConfig(seed=chosen.seed)), progress)
    print_metrics(metrics, chosen.out)


if __name__ == "__main__":
    main()

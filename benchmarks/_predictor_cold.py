"""A new model with 0, 50 or 200 rows beside the full logs of seven others: joint training against its own rows alone.

    python benchmarks/_predictor_cold.py [--data bfcl] [--new ENDPOINT ...]

Measured on prompt groups that no step saw. Joint is what `swarmx train` does with all rows; own is the same on the new
model's rows alone (quantiles per type and ridge, too few rows for more); per_type is their quantiles per type.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.predict.baselines import fit_groups, keys_of
from swarmx.predict.bundle import shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.fit import FitConfig
from swarmx.predict.metrics import REPORTED, coverage, pinball_at, r2_log
from swarmx.predict.split import folds

sys.path.insert(0, str(Path(__file__).parent))
from _predictor_split import Log, fit_swarmx  # type: ignore[import-not-found]
from predictor import log_of, say  # type: ignore[import-not-found]

SIZES = (0, 50, 200)
MOST_OTHERS = 3000  # rows of the other models together


def measured(values: Any, observed: Any, base: Any) -> dict[str, Any]:
    own, theirs = pinball_at(values, observed), pinball_at(base, observed)
    shares = coverage(values, observed)
    return {
        "r2_log": round(r2_log(values, observed), 3),
        "pinball_ratio": {q: round(own[q] / theirs[q], 3) for q in own},
        "coverage": {f"{q:g}": round(shares[f"{q:g}"], 3) for q in REPORTED},
    }


def cold(log: Log, new: str, seed: int, epochs: int) -> dict[str, Any]:
    """size -> arm -> figures; the ratio is to quantiles of all training rows of the other models."""
    rng = np.random.default_rng(seed)
    fold = folds(log.groups, 5, seed)
    mine = np.array([call.model == new for call in log.calls])
    out, others = np.flatnonzero(mine & (fold == 0)), np.flatnonzero(~mine & (fold != 0))
    others = np.sort(rng.permutation(others)[:MOST_OTHERS])
    order = rng.permutation(np.flatnonzero(mine & (fold != 0)))
    column = log.wanted.column("tokens")
    base = fit_groups([None] * len(others), column[others]).values([None] * len(out))
    test = [log.calls[i] for i in out]
    found: dict[str, Any] = {}
    for size in SIZES:
        own = np.sort(order[:size])
        config = FitConfig(seed=seed, epochs=epochs)
        arms = {"joint": fit_swarmx(log, np.sort(np.concatenate((others, own))), out, config, shipped())}
        if size >= 50:
            arms["own"] = fit_swarmx(log, own, out, config, shipped())
        found[str(size)] = {arm: measured(s.arms["tokens"]["swarmx"], column[out], base) for arm, s in arms.items()}
        if size >= 50:
            kinds = keys_of([log.calls[i] for i in own], "per_type")
            grids = fit_groups(kinds, column[own]).values(keys_of(test, "per_type"))
            found[str(size)]["per_type"] = measured(grids, column[out], base)
        say(f"{new}, {size} rows: {json.dumps(found[str(size)])}")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="bfcl")
    options.add_argument("--new", nargs="+", default=["mistral-large-2402-FC-Any", "claude-3-opus-20240229"])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--epochs", type=int, default=20)
    chosen = options.parse_args()
    log = log_of(chosen.data, TextEncoder.load(shipped()))
    print(json.dumps({new: cold(log, new, chosen.seed, chosen.epochs) for new in chosen.new}))


if __name__ == "__main__":
    main()

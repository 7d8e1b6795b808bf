"""How good and how fast the predictor is: python benchmarks/predictor.py LOG [--quick] [--rivals] [--json]

LOG is `shipped`, a Parquet log, or `bfcl_multi_turn_vllm:DIR` for the single live calls of gpt-oss in a folder of
public logs. Every prompt group is predicted once by a model that was trained on none of its rows; intervals are a
bootstrap over groups.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.baselines import boosted, fit_groups, keys_of
from swarmx.predict.evaluate import BASELINES
from swarmx.predict.features import features
from swarmx.predict.fit import FitConfig
from swarmx.predict.metrics import REPORTED, coverage, exceedance_ratio, pinball_at, r2_log
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import folds, groups_of
from swarmx.predict.targets import targets, usable
from swarmx.predict.train import TrainConfig, train
from swarmx.quantiles import LEVELS, QuantileGrid, pinball_loss
from swarmx.types import Call, CallRecord

Array = NDArray[np.float64]


def cross_validated(
    records: Sequence[CallRecord], config: TrainConfig, k: int, seed: int, rivals: bool
) -> tuple[dict[str, dict[str, Array]], dict[str, Array], NDArray[np.str_], float]:
    """target -> arm -> out-of-fold grids (N, K); observed values; group of each row; seconds of one training."""
    rows = usable(records)
    calls = [records[i] for i in rows]
    wanted, groups = targets(records, rows), groups_of(calls)
    fold = folds(groups, k, seed, [call.type for call in calls])
    arms: dict[str, dict[str, Array]] = {name: {} for name in wanted.names}
    took = []
    for outer in range(k):
        testing = fold == outer
        inside, test = np.flatnonzero(~testing), [calls[i] for i in np.flatnonzero(testing)]
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            train(records, Path(folder) / "model", config, testing=testing)
            took.append(time.perf_counter() - began)
            predictor = Predictor.load(Path(folder) / "model")
        found = {
            "swarmx": predictor.grids(test),
            "swarmx, type hidden": predictor.grids([replace(c, type=None) for c in test]),
        }
        for t, name in enumerate(wanted.names):
            parts = {arm: grids.of(name) for arm, grids in found.items()}
            seen = wanted.values[inside, t]
            for kind in BASELINES:
                parts[kind] = fit_groups(keys_of([calls[i] for i in inside], kind), seen).values(keys_of(test, kind))
            if rivals:
                parts["boosted trees"] = _boosted(calls, inside, np.flatnonzero(testing), seen)
            for arm, values in parts.items():
                arms[name].setdefault(arm, np.zeros((len(calls), len(LEVELS))))[testing] = values
    return arms, {name: wanted.column(name) for name in wanted.names}, groups, float(np.median(took))


def _boosted(calls: Sequence[CallRecord], inside: NDArray[np.int64], out: NDArray[np.int64], seen: Array) -> Array:
    """The usual rival on counts, the type and 64 axes of the n-grams."""
    from scipy.sparse import csr_array
    from sklearn.decomposition import TruncatedSVD

    found = features(calls)
    n, width = found.gram_ids.shape
    grams = csr_array(
        (found.gram_weights.ravel(), found.gram_ids.ravel(), np.arange(0, n * width + 1, width)), shape=(n, 16384)
    )
    axes = TruncatedSVD(64, random_state=0).fit(grams[inside]).transform(grams)
    kinds = sorted({kind for kind, _ in found.labels})
    typed = np.array([[kind == known for known in kinds] for kind, _ in found.labels], np.float32)
    x = np.hstack((found.counts, typed, axes)).astype(np.float32)
    return boosted(x[inside], seen, x[out], LEVELS.tolist())


def table(arms: dict[str, Array], observed: Array, groups: NDArray[np.str_], seed: int = 0) -> dict[str, Any]:
    """Metrics of each arm and the ratio of swarmx's pinball to its, with 95 % intervals over groups."""
    rng = np.random.default_rng(seed)
    names, place = np.unique(groups, return_inverse=True)
    places = [int(np.flatnonzero(np.isclose(LEVELS, level))[0]) for level in REPORTED]
    loss = {arm: pinball_loss(QuantileGrid(LEVELS, v), observed)[:, places] for arm, v in arms.items()}
    sums = {arm: np.stack([np.bincount(place, rows, len(names)) for rows in v.T], axis=1) for arm, v in loss.items()}
    draws = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=400)  # (400, G)
    out: dict[str, Any] = {}
    for arm, values in arms.items():
        ratio = sums["swarmx"].sum(0) / np.maximum(sums[arm].sum(0), 1e-12)
        spread = (draws @ sums["swarmx"]) / np.maximum(draws @ sums[arm], 1e-12)
        low, high = np.quantile(spread, (0.025, 0.975), axis=0)
        out[arm] = {
            "pinball": pinball_at(values, observed),
            "swarmx_over_this": {
                f"{level:g}": [round(float(x[i]), 4) for x in (ratio, low, high)] for i, level in enumerate(REPORTED)
            },
            "coverage": coverage(values, observed),
            "exceedance_ratio": exceedance_ratio(values, observed),
            "r2_log": r2_log(values, observed),
        }
    return out


def speed(records: Sequence[CallRecord], config: TrainConfig) -> dict[str, float]:
    """Milliseconds of one prediction on one thread, distinct prompts, nothing cached; calls/s of a batch of 5,000."""
    with tempfile.TemporaryDirectory() as folder:
        train(records, Path(folder) / "model", config)
        predictor = Predictor.load(Path(folder) / "model", cache_bytes=0)
    texts = sorted({record.prompt for record in records if record.prompt})
    calls = [Call(id=str(i), model=records[0].model, arrival_s=0.0, prompt=text) for i, text in enumerate(texts)]
    predictor.predict(calls[:5])
    took = []
    for call in calls[:500]:
        began = time.perf_counter()
        predictor.predict([call])
        took.append(1e3 * (time.perf_counter() - began))
    many = [replace(calls[i % len(calls)], prompt=f"{calls[i % len(calls)].prompt} {i}") for i in range(5000)]
    began = time.perf_counter()
    predictor.grids(many)
    return {
        "p50": float(np.quantile(took, 0.5)), "p99": float(np.quantile(took, 0.99)),
        "batch_5000_s": time.perf_counter() - began,
    }  # fmt: skip


def load(source: str) -> list[CallRecord]:
    """Records of the log that ships, of a Parquet log, or of a public one."""
    name, _, folder = source.partition(":")
    if name == "bfcl_multi_turn_vllm":
        sys.path.insert(0, str(Path(__file__).parent))
        from _predictor_data import vllm_single

        return vllm_single(Path(folder))
    from swarmx.logs.table import read_log

    shipped = Path(__file__).parent.parent / "data" / "execution_log.parquet"
    return read_log(shipped if source == "shipped" else Path(source))


def run(
    quick: bool = False, data: str = "shipped", k: int = 5, seed: int = 0,
    encoder: Path | None = None, rivals: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """All figures; those of the output tokens also at the top. quick : three folds and a third of the epochs"""
    records = load(data)
    config = TrainConfig(fit=FitConfig(seed=seed, epochs=20 if quick else 60), encoder=encoder, plots=False)
    k = 3 if quick else k
    arms, observed, groups, seconds = cross_validated(records, config, k, seed, rivals)
    found = {name: table(arms[name], observed[name], groups) for name in arms}
    own, base = found["tokens"]["swarmx"], found["tokens"]["per_type_device"]["swarmx_over_this"]
    return {
        "pinball_ratio_vs_per_type_device": {level: ratio[0] for level, ratio in base.items()},
        "coverage_error": {level: share - float(level) for level, share in own["coverage"].items()},
        "exceedance_ratio": own["exceedance_ratio"],
        "r2_log": {arm: metrics["r2_log"] for arm, metrics in found["tokens"].items()},
        "prediction_ms": speed(records, config),
        "rows": len(groups), "groups": len(set(groups)), "folds": k, "seed": seed, "data": data, "training_s": seconds,
        "targets": found,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("log")
    options.add_argument("--folds", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--encoder", type=Path, default=None)
    options.add_argument("--quick", action="store_true", help="three folds, a third of the epochs")
    options.add_argument("--rivals", action="store_true", help="also gradient-boosted quantiles (minutes)")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    result = run(chosen.quick, chosen.log, chosen.folds, chosen.seed, chosen.encoder, chosen.rivals)
    if chosen.json:
        print(json.dumps(result))
        return
    print(f"{result['rows']} rows, {result['groups']} groups, {result['folds']} folds")
    print(f"training {result['training_s']:.1f} s; one prediction: {result['prediction_ms']}")
    for name, found in result["targets"].items():
        print(f"\n{name}: swarmx's pinball over that of … [95 % interval]")
        for arm, m in found.items():
            ratios = "  ".join(f"q{q} {r:.3f} [{a:.2f}, {b:.2f}]" for q, (r, a, b) in m["swarmx_over_this"].items())
            shares = " ".join(f"{m['coverage'][q]:.3f}" for q in ("0.1", "0.5", "0.9", "0.95", "0.99"))
            print(f"  {arm:20s} {ratios}  R2 {m['r2_log']:.3f}  below .1 .5 .9 .95 .99: {shares}")


if __name__ == "__main__":
    main()

"""How good and how fast the predictor is: python benchmarks/predictor.py [--data NAME] [--quick] [--json]

NAME is `shipped`, a Parquet log, or one of the public logs `bfcl_multi_turn_vllm` (single live calls of gpt-oss; its
workflows' steps are measured beside them), `bfcl_multi_turn_vllm_calls` (the same live calls, learned from the other
single calls too) and `bfcl` (function calls of eight endpoints). Splits are by prompt group
and repeated; an interval is a bootstrap over the groups of all splits. As `swarmx bench predictor --data NAME`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.bundle import shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.encoders import encoder_directory
from swarmx.predict.features import features
from swarmx.predict.fit import FitConfig
from swarmx.predict.metrics import REPORTED
from swarmx.predict.nearness import NEAR
from swarmx.predict.split import folds, groups_of
from swarmx.predict.targets import TOKENS, targets, usable

sys.path.insert(0, str(Path(__file__).parent))
from _predictor_data import load, scored  # type: ignore[import-not-found]
from _predictor_rivals import Material, fit_rivals, material  # type: ignore[import-not-found]
from _predictor_speed import encoder_speed, prediction_speed  # type: ignore[import-not-found]
from _predictor_split import Log, Split, fit_swarmx  # type: ignore[import-not-found]
from _predictor_table import table  # type: ignore[import-not-found]

Array = NDArray[np.float64]
STEPS = {"steps": "steps of the workflow", "turn": "steps of the first turn"}  # from the first turn's text
FOLDS = 5  # a split holds out one of so many folds; five splits ask about every group once


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def log_of(name: str, encoder: TextEncoder) -> Log:
    records = load(name)
    rows = usable(records)
    calls = [records[i] for i in rows]
    found = features(calls)
    say(f"{len(calls)} calls, {len(set(found.texts))} texts; embedding them")
    asked = np.array([scored(name, call) for call in calls])
    return Log(calls, targets(records, rows), groups_of(calls), found, encoder.of(found), NEAR * encoder.tools, asked)


def measure(log: Log, rivals: Material, config: FitConfig, repeats: int, encoder: Path, until: float) -> list[Split]:
    """One `Split` per repeat, fewer where the time until `until` (as `process_time`) does not suffice.

    Our own training comes first: the rivals get, split by split, what it will leave of the time.
    """
    done: list[Split] = []
    longest, took = 0.0, dict[tuple[str, str], float]()
    for repeat in range(repeats):
        if done and time.process_time() + longest > until:
            say(f"stopped after {len(done)} of {repeats} splits: the time is spent")
            break
        fold = folds(log.groups, FOLDS, config.seed + repeat // FOLDS, [call.type for call in log.calls])
        inside, out = np.flatnonzero(fold != repeat % FOLDS), np.flatnonzero((fold == repeat % FOLDS) & log.scored)
        split = fit_swarmx(log, inside, out, replace(config, seed=config.seed + repeat), encoder)
        say(f"split {repeat + 1} of {repeats}: trained on {len(inside)} calls in {split.training_s:.1f} s")
        longest = max(longest, split.training_s)
        spent = until - longest * (repeats - repeat - 1)
        for t, name in enumerate(log.wanted.names):
            expected = {rival: s for (target, rival), s in took.items() if target == name}
            values, needed = fit_rivals(rivals, inside, out, log.wanted.values[inside, t], spent, expected)
            took |= {(name, rival): s for rival, s in needed.items()}
            split.arms[name] |= values
            if name == TOKENS:  # an answer ends at its max_tokens, whoever predicts it
                split.arms[name] = {arm: np.minimum(v, log.caps[out, None]) for arm, v in split.arms[name].items()}
            say(f"  {name}: " + ", ".join(f"{rival} {s:.1f} s" for rival, s in needed.items() if s > 0.5))
        done.append(split)
    return done


def run(
    quick: bool = False, data: str = "shipped", repeats: int = 5, seed: int = 0,
    encoder: Path | None = None, minilm: bool | None = None, budget_s: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All figures; those of the output tokens also at the top.

    quick : two splits, a fifth of the epochs, no MiniLM, under a minute; else under 8 minutes. encoder : None, the
        shipped
    """
    began = time.process_time()
    until = began + (budget_s or (40.0 if quick else 400.0))
    source = encoder or shipped()
    config = FitConfig(seed=seed, epochs=12 if quick else 60)
    reader = TextEncoder.load(source)
    found: dict[str, Any] = {}
    names = logs_of(data)
    for name in names:
        say(f"reading {name}")
        log = log_of(name, reader)
        rivals = material(log.calls, reader, (not quick) if minilm is None else minilm)
        last = until if name is names[-1] else began + (until - began) * (0.7 if name is names[0] else 0.85)
        splits = measure(log, rivals, config, 2 if quick else repeats, source, last)
        as_name = STEPS.get(name.partition(":")[0].rpartition("_")[2])
        found |= {as_name or t: table(log, splits, t) for t in log.wanted.names}
        if name is names[0]:
            first, first_splits = log, splits
    say("measuring speed")
    own, arms = found[TOKENS]["swarmx"], found[TOKENS]
    return {
        "pinball_ratio_vs_per_type_device": {q: v[0] for q, v in arms["per_type_device"]["swarmx_over_this"].items()},
        "coverage_error": {level: share - float(level) for level, share in own["coverage"].items()},
        "exceedance_ratio": own["exceedance_ratio"],
        "r2_log": {arm: m["r2_log"] for arm, m in arms.items()},
        "encoder_ms_128": encoder_speed(reader, source, quick),
        "prediction_ms": prediction_speed(first.calls, first_splits[-1].predictor, quick),
        "baselines": {
            arm: {q: v[0] for q, v in m["swarmx_over_this"].items()} for arm, m in arms.items() if arm != "swarmx"
        },
        "won_by": {name: winners(arms) for name, arms in found.items()},
        "rows": len(first.calls), "groups": len(set(first.groups.tolist())), "splits": len(first_splits), "seed": seed,
        "data": data, "quick": quick, "took_s": time.process_time() - began,
        "training_s": float(np.mean([split.training_s for split in first_splits])),
        "targets": found,
    }  # fmt: skip


def logs_of(data: str) -> list[str]:
    """What is measured under a name: the steps of workflows go with the single calls of the same runs."""
    name, colon, folder = data.partition(":")
    if name != "bfcl_multi_turn_vllm":
        return [data]
    return [data, *(f"{name}_{part}{colon}{folder}" for part in ("steps", "turn"))]


def winners(arms: dict[str, Any]) -> dict[str, str]:
    """The arm of least pinball beside swarmx on the same splits, at each reported level; those that know the type."""
    known = {arm: m["swarmx_over_this"] for arm, m in arms.items() if arm != "swarmx, type hidden"}
    return {f"{q:g}": max(known, key=lambda arm: known[arm][f"{q:g}"][0]) for q in REPORTED}


def show(result: dict[str, Any]) -> None:
    print(f"{result['rows']} rows, {result['groups']} groups, {result['splits']} splits, {result['took_s']:.0f} s")
    print(f"encoder {result['encoder_ms_128']}; one prediction {result['prediction_ms']}")
    for name, arms in result["targets"].items():
        print(f"\n{name}: swarmx's pinball over that of … [95 % interval]")
        for arm, m in arms.items():
            ratios = "  ".join(f"q{q} {r:.3f} [{a:.2f}, {b:.2f}]" for q, (r, a, b) in m["swarmx_over_this"].items())
            shares = " ".join(f"{m['coverage'][f'{q:g}']:.3f}" for q in REPORTED)
            print(f"  {arm:20s} {ratios}  R2 {m['r2_log']:.3f}  below .5 .9 .95 .99: {shares}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="shipped")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--encoder", type=Path, default=None, help="directory of an encoder, or minilm")
    options.add_argument("--budget", type=float, default=None, help="CPU seconds (default: 400, with --quick 40)")
    options.add_argument("--quick", action="store_true", help="two splits, a fifth of the epochs, no MiniLM")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        encoder = None if chosen.encoder is None else encoder_directory(chosen.encoder, Path(scratch) / "encoder")
        result = run(chosen.quick, chosen.data, chosen.repeats, chosen.seed, encoder, budget_s=chosen.budget)
    if chosen.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()

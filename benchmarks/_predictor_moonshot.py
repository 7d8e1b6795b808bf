"""What lifts the predictor on live calls, tried: python benchmarks/_predictor_moonshot.py --trial NAME [--out DIR]

Every trial predicts the log length of gpt-oss-120b's live single calls with the call type known and hidden, on the
folds of `benchmarks/predictor.py`; residual bins and, where the type is known, its quantiles make grids of it, as in
the predictor. JSON out: R2, pinball over that of the type's quantiles, each with a paired bootstrap over prompt groups
against the trial `default`. Every fold's result is kept in DIR, so that a killed run goes on where it was. Seeds are
fixed. Skips with a sentence where the logs or a package are not there. The trials: `_predictor_moonshot_trials.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.metrics import REPORTED, mean_log
from swarmx.predict.split import folds
from swarmx.predict.start import fit_start, fit_types
from swarmx.quantiles import LEVELS

sys.path.insert(0, str(Path(__file__).parent))
from _predictor_moonshot_data import FOLDS, Prompts, read_prompts  # type: ignore[import-not-found]
from _predictor_moonshot_trials import ALONE, TRIALS, Bench  # type: ignore[import-not-found]
from _predictor_table import pinball  # type: ignore[import-not-found]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
BINS, DRAWS = 8, 1000
ARMS = ("typed", "hidden")


@dataclass(frozen=True, slots=True)
class Asked:
    """The scored calls of a trial's folds, one row per run.

    row : (C,) place of the prompt; logs : (C,); group : (C,) place among `groups` groups
    guess : arm -> (C,) predicted log; grids : arm -> (C, K) log quantiles, and those of the type alone under "per_type"
    """

    row: Rows
    logs: Array
    group: Rows
    guess: dict[str, Array]
    grids: dict[str, Array]


def runs_of(prompts: Prompts, rows: Rows) -> tuple[Rows, Array]:
    """(row, log) of every run of the target on these prompts."""
    at, run = np.nonzero(np.isfinite(prompts.observed[rows]))
    return rows[at], np.log1p(prompts.observed[rows[at], run])


def guesses(bench: Bench, name: str, fold: int, kept: Path | None) -> Array:
    """(2, N) typed and hidden; of the rows trained on out of fold, but for trials in ALONE."""
    file = None if kept is None else kept / f"{name}.{fold}.npy"
    if file is not None and file.exists():
        return np.load(file)
    began = time.process_time()
    found = np.stack([TRIALS[name](bench, fold, typed) for typed in (True, False)])
    print(f"{name}, fold {fold}: {time.process_time() - began:.0f} CPU seconds", file=sys.stderr, flush=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, found)
    return found


def grids_of(prompts: Prompts, guess: Array, fold: int) -> dict[str, Array]:
    """Log quantiles of the runs held out: residual bins, mixed with the type's quantiles as the predictor mixes."""
    scored = prompts.scored
    inside, out = scored[prompts.fold[scored] != fold], scored[prompts.fold[scored] == fold]
    rows, logs = runs_of(prompts, inside)
    asked, _ = runs_of(prompts, out)
    names, kind = np.unique(np.array(prompts.types), return_inverse=True)
    kind = kind.astype(np.int64) + 1
    inner = folds(prompts.group[rows], 8, fold)
    start = fit_start(guess[:, rows], logs, kind[rows], len(names), inner, BINS, len(inside) / len(rows))
    by_type = start.by_type[kind[asked]]
    typed = start.trust * start.bins[0].at(guess[0, asked]) + (1 - start.trust) * by_type
    kinds = fit_types(kind[rows], logs, len(names))[kind[asked]]
    return {"typed": typed, "hidden": start.bins[1].at(guess[1, asked]), "per_type": kinds}


def ask(bench: Bench, name: str, wanted: list[int], kept: Path | None) -> Asked:
    prompts, parts = bench.prompts, []
    for fold in wanted:
        guess = guesses(bench, name, fold, kept)
        row, logs = runs_of(prompts, np.flatnonzero(prompts.fold == fold))
        grids = {} if name in ALONE else grids_of(prompts, guess, fold)
        parts.append((row, logs, guess[:, row], grids))
    row, logs = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    guess = np.concatenate([part[2] for part in parts], axis=1)
    grids = {arm: np.concatenate([part[3][arm] for part in parts]) for arm in parts[0][3]}
    group = np.unique(prompts.group[row], return_inverse=True)[1]
    return Asked(row, logs, group, dict(zip(ARMS, guess, strict=True)), grids)


def report(trial: Asked, default: Asked) -> dict[str, Any]:
    """Per arm: R2 of prediction and of the grids' mean, gain over `default` and pinball ratios with 95 % intervals."""
    size = int(trial.group.max()) + 1
    draws = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), size=DRAWS).astype(float)
    draws = np.concatenate((np.ones((1, size)), draws))  # the first row is the log itself

    def summed(values: Array) -> Array:
        return draws @ np.bincount(trial.group, values, size)

    def r2(guess: Array) -> Array:
        count, first, second = summed(np.ones(len(guess))), summed(trial.logs), summed(trial.logs**2)
        spread: Array = 1 - summed((trial.logs - guess) ** 2) / (second - first**2 / count)
        return spread

    out: dict[str, Any] = {"rows": len(trial.row), "groups": size}
    for arm in ARMS:
        gain = r2(trial.guess[arm]) - r2(default.guess[arm])
        out[arm] = {"r2": _spread(r2(trial.guess[arm])), "r2_over_default": _spread(gain)}
        if arm in trial.grids:
            own, kind, observed = np.expm1(trial.grids[arm]), np.expm1(trial.grids["per_type"]), np.expm1(trial.logs)
            ours, theirs, base = (pinball(g, observed) for g in (own, kind, np.expm1(default.grids[arm])))
            out[arm]["r2_of_grids"] = _spread(r2(mean_log(own)))
            out[arm]["exceedance"] = {
                f"{q:g}": float((observed > own[:, int(np.searchsorted(LEVELS, q - 1e-9))]).mean() / (1 - q))
                for q in (0.95, 0.99)
            }
            for label, rival in (("pinball_over_per_type", theirs), ("pinball_over_default", base)):
                out[arm][label] = {
                    f"{q:g}": _spread(summed(ours[:, i]) / summed(rival[:, i])) for i, q in enumerate(REPORTED)
                }
    return out


def _spread(values: Array) -> list[float]:
    """[of the log, 2.5 %, 97.5 %]"""
    return [round(float(v), 4) for v in (values[0], *np.quantile(values[1:], (0.025, 0.975)))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trial", choices=[*TRIALS, "all"], default="all", help="all: every one but smollm2")
    options.add_argument("--data", default="bfcl_multi_turn_vllm", help="as in benchmarks/predictor.py")
    options.add_argument("--non-live", action="store_true", help="score the non-live calls in place of the live ones")
    options.add_argument("--folds", type=int, default=FOLDS, help="so many of the five folds")
    options.add_argument("--out", type=Path, default=None, help="directory that keeps what was done")
    chosen = options.parse_args()
    try:
        bench = Bench.read(read_prompts(chosen.data, not chosen.non_live))
    except BadInput as problem:
        print(f"skipped: {problem}", file=sys.stderr)
        return
    names = [name for name in TRIALS if name not in ALONE] if chosen.trial == "all" else [chosen.trial]
    wanted, found = list(range(chosen.folds)), {}
    default = ask(bench, "default", wanted, chosen.out)
    for name in names:
        try:
            found[name] = report(ask(bench, name, wanted, chosen.out), default)
        except BadInput as problem:
            print(f"{name} skipped: {problem}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

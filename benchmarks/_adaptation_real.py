"""Real drift through the whole loop: trained on one published run, replayed into unseen queries of it and of the next.

    python benchmarks/_adaptation_real.py --data DIR [--only NAME]

DIR holds the public logs `bfcl/` and `bfcl_multi_turn_vllm/`, which are not part of the project. No query that is
replayed was trained on. Where seconds are predicted, milliseconds stand in the place of output tokens.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from swarmx.adapt.replay import Replayed, replay
from swarmx.predict.fit import FitConfig
from swarmx.predict.train import TrainConfig, train
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

TRAINED, HELD, FRESH = 2000, 1000, 2500  # calls: for the first model, of the old run after it, of the new run
PART = 500  # calls over which loss and coverage are told
OUTSIDE = ("claude-3-opus-20240229", "command-r-plus-FC", "gpt-4-1106-preview-FC", "gemini-1.0-pro",
           "mistral-small-2402-FC-Auto", "snowflake_arctic")  # fmt: skip
COVERED = LEVELS[[int(np.searchsorted(LEVELS, level)) for level in (0.5, 0.9, 0.95, 0.99)]]


@dataclass(frozen=True, slots=True)
class Row:
    """One call of a run; amount : what is predicted of it"""

    query: str
    category: str
    model: str
    amount: float


Source = Callable[[Path], tuple[list[Row], list[Row], dict[str, str]]]  # old run, new run, prompt of each query


def through_loop(folder: Path, only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Figures of each stream whose log is there, by name; nothing where none is."""
    return {
        name: _looped(*read(folder))
        for name, (where, read) in STREAMS.items()
        if (folder / where).is_dir() and (not only or name in only)
    }


def _looped(old: list[Row], new: list[Row], prompts: dict[str, str], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    queries = sorted({row.query for row in old} & {row.query for row in new})
    seen = set(rng.permutation(queries)[: 2 * len(queries) // 3].tolist())
    parts = [row for row in old if row.query in seen], [row for row in old if row.query not in seen]
    again = [row for row in new if row.query not in seen]
    taken = [_drawn(rows, most, rng) for rows, most in zip((*parts, again), (TRAINED, HELD, FRESH), strict=True)]
    first, held, fresh = (_records(rows, prompts, at) for rows, at in zip(taken, (0, 10**5, 2 * 10**5), strict=True))
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        fit = FitConfig(epochs=20, members=4, left_out=1, landmarks=128, count_landmarks=64)
        train(first, Path(place) / "model", TrainConfig(fit, plots=False))
        found = replay([*held, *fresh], Path(place) / "model")
    return _told(found, len(held)) | {"trained_on": len(first), "cpu_s": round(time.process_time() - begun, 1)}


def _drawn(rows: list[Row], most: int, rng: np.random.Generator) -> list[Row]:
    return [rows[i] for i in rng.permutation(len(rows))[:most]]


def _records(rows: list[Row], prompts: dict[str, str], at: int) -> list[CallRecord]:
    return [
        CallRecord(
            f"{at + i}", row.model, float(at + i), "ok", type=row.category, prompt=prompts[row.query],
            prompt_group=row.query, output_tokens=max(round(row.amount), 1), finished_s=at + i + 0.5,
        )
        for i, row in enumerate(rows)
        if row.query in prompts
    ]  # fmt: skip


def _told(found: Replayed, start: int) -> dict[str, Any]:
    """start : place of the new run's first call"""
    alarms = [event.seq - start for event in found.events if event.kind == "alarm"]
    kinds = [event.kind for event in found.events]
    return {
        "records": [start, len(found.served) - start],
        "false_alarms": sum(at < 0 for at in alarms),
        "first_alarm": next((at for at in alarms if at >= 0), None),
        "alarms": sum(at >= 0 for at in alarms),
        **{f"{kind}s": kinds.count(kind) for kind in ("retrain", "promoted", "rejected", "rolled_back")},
        "parts": [_part(found, at, start) for at in range(0, len(found.served), PART)],
    }


def _part(found: Replayed, at: int, start: int) -> dict[str, Any]:
    """Losses of `PART` calls, and the largest gap between a level and the share covered."""
    rows = slice(at, at + PART)
    return {
        "begins": at - start,
        **{name: round(float(getattr(found, name)[rows].mean()), 3) for name in ("frozen", "raw", "served")},
        "error_frozen": round(float(np.abs(found.frozen_covered[rows].mean(axis=0) - COVERED).max()), 3),
        "error_served": round(float(np.abs(found.covered[rows].mean(axis=0) - COVERED).max()), 3),
    }


# ---- logs ----


def _bfcl(target: str) -> Source:
    def read(folder: Path) -> tuple[list[Row], list[Row], dict[str, str]]:
        table = pq.read_table(folder / "bfcl" / "single_turn_runs.parquet").to_pylist()
        old, new = (
            [
                Row(r["query_id"], r["category"], r["model"], _amount(r, target))
                for r in table
                if str(r["run_date"]) == date and r["model"] in OUTSIDE and r[target] is not None
            ]
            for date in ("2024-07-25", "2024-08-11")
        )
        asked = pq.read_table(folder / "bfcl" / "single_turn_prompts.parquet").to_pylist()
        return old, new, {r["query_id"]: f"{r['functions_json']}\n{r['prompt']}" for r in asked}

    return read


def _vllm(target: str) -> Source:
    def read(folder: Path) -> tuple[list[Row], list[Row], dict[str, str]]:
        home = folder / "bfcl_multi_turn_vllm"
        rows = [r for r in pq.read_table(home / "runs.parquet").to_pylist() if r["model"] == "gpt-oss-120b"]
        old, new = (
            [
                Row(r["query_id"], r["category"], r["model"], _amount(r, target))
                for r in rows
                if r["run"] == run and not r["category"].startswith("multi_turn")
            ]
            for run in ("v0.10.2", "2025-11-12-main")
        )
        asked = pq.read_table(home / "prompts.parquet").to_pylist()
        prompts = {r["query_id"]: f"{r['functions_json']}\n{' '.join(map(str, r['turn_prompts']))}" for r in asked}
        return old, new, prompts

    return read


def _amount(row: dict[str, Any], target: str) -> float:
    return float(row[target]) * (1000.0 if target.endswith("_s") else 1.0)


STREAMS: dict[str, tuple[str, Source]] = {
    "bfcl tokens": ("bfcl", _bfcl("output_tokens")),
    "bfcl ms": ("bfcl", _bfcl("latency_s")),
    "gpt-oss-120b tokens, by vLLM build": ("bfcl_multi_turn_vllm", _vllm("total_output_tokens")),
    "gpt-oss-120b ms, by vLLM build": ("bfcl_multi_turn_vllm", _vllm("total_latency_s")),
}


if __name__ == "__main__":
    import argparse
    import json

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", required=True)
    options.add_argument("--only", nargs="*", default=[])
    given = options.parse_args()
    print(json.dumps(through_loop(Path(given.data), given.only), indent=1))

"""Streams of predicted and observed calls that shift at a known place: made up with a seed, and from public logs.

The public logs are not part of the project: pass the directory that holds `bfcl/` and `bfcl_multi_turn_vllm/`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from swarmx.drift import Group
from swarmx.predict.baselines import fit_groups
from swarmx.quantiles import LEVELS, QuantileGrid

Row = tuple[Group, QuantileGrid, float]
NORMAL = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
DEVICES = ("fast", "slow")
TYPES = 4


@dataclass(frozen=True)
class Stream:
    """reference : what the monitor is given; before, after : the rows on both sides of the shift; touched : groups that
    shifted, none when only their shares did"""

    name: str
    reference: list[Row]
    before: list[Row]
    after: list[Row]
    touched: frozenset[Group] = field(default_factory=frozenset)


def group(kind: int, device: str) -> Group:
    return f"type {kind}", "model", device


def drawn(
    rng: np.random.Generator, count: int, shares: Sequence[float] | None = None,
    factors: dict[Group, float] | None = None, heavy: bool = False, step: float = 0.0,
) -> list[Row]:  # fmt: skip
    """Calls of `TYPES` types on two devices, each type with its own spread (0.4 to 1.2 on the log scale).

    The predictor knows median and spread, save that it thinks type 1 half as long as it is; heavy : the logs are
    Student's with 2 degrees of freedom; step : observations are rounded up to multiples of it, so that many are equal
    """
    kinds, devices = rng.choice(TYPES, count, p=shares), rng.integers(2, size=count)
    middles, spreads = np.exp(rng.normal(5, 0.6, count)), 0.4 + 0.8 * kinds / (TYPES - 1)
    noise = np.minimum(rng.standard_t(2, count) if heavy else rng.normal(size=count), 100.0)
    groups = [group(kind, DEVICES[device]) for kind, device in zip(kinds.tolist(), devices.tolist(), strict=True)]
    shifts = np.array([(factors or {}).get(one, 1.0) for one in groups]) * np.where(kinds == 1, 2.0, 1.0)
    seen = shifts * middles * np.exp(spreads * noise)
    if step:
        seen = np.ceil(seen / step) * step
    values = middles[:, None] * np.exp(spreads[:, None] * NORMAL)  # (count, K)
    return [(g, QuantileGrid(LEVELS, v), x) for g, v, x in zip(groups, values, seen.tolist(), strict=True)]


def shifted(name: str, seed: int, heavy: bool = False, rows: int = 4000) -> Stream:
    """One of `SHIFTS`, twofold; `rows` calls before and after, 2,000 for the reference."""
    rng = np.random.default_rng([seed, len(name)])
    every = [group(kind, device) for kind in range(TYPES) for device in DEVICES]
    touched = {
        "stationary": [],
        "prompt mix changes": [],
        "lengths double": every,
        "one type doubles": [group(2, device) for device in DEVICES],
        "one group doubles": [group(2, "slow")],
        "device slows": [group(kind, "slow") for kind in range(TYPES)],
        "lengths halve": every,
    }[name]
    factor = 0.5 if name == "lengths halve" else 2.0
    even, odd = [1 / TYPES] * TYPES, [0.7, 0.02, 0.08, 0.2]
    return Stream(
        name,
        drawn(rng, 2000, even, heavy=heavy),
        drawn(rng, rows, even, heavy=heavy),
        drawn(rng, rows, odd if "mix" in name else even, dict.fromkeys(touched, factor), heavy),
        frozenset(touched),
    )


def busy_group(rng: np.random.Generator, rows: int = 1500) -> tuple[list[Row], list[Row]]:
    """One rightly predicted group with a spread of 0.93 on the log scale, before and after its lengths double."""
    here, only = group(2, "slow"), [0.0, 0.0, 1.0, 0.0]
    before, after = ([(here, grid, x) for _, grid, x in drawn(rng, rows, only)] for _ in range(2))
    return before, [(g, grid, 2 * x) for g, grid, x in after]


def one_group(rng: np.random.Generator, rows: int, sigma: float, factor: float = 1.0) -> list[Row]:
    """One rightly predicted group of that spread on the log scale, save for a factor."""
    middles = np.exp(rng.normal(5, 0.6, rows))
    seen = factor * middles * np.exp(sigma * rng.normal(size=rows))
    here = group(0, "fast")
    return [
        (here, QuantileGrid(LEVELS, middle * np.exp(sigma * NORMAL)), float(x))
        for middle, x in zip(middles, seen, strict=True)
    ]


SHIFTS = (
    "lengths double", "one type doubles", "one group doubles", "device slows", "lengths halve",
    "prompt mix changes", "stationary",
)  # fmt: skip


# ---- public logs ----


@dataclass(frozen=True)
class Runs:
    """Calls of one run: what is predicted from (category, model), and what was observed. key : (N,) query"""

    groups: list[Group]
    keys: list[str]
    observed: NDArray[np.float64]


def predicted(train: Runs, test: Runs) -> list[Row]:
    """Quantiles of each group's observations in `train`, for the rows of `test`."""
    table = fit_groups(train.groups, train.observed)
    values = table.values(test.groups)
    return [(g, QuantileGrid(LEVELS, v), float(x)) for g, v, x in zip(test.groups, values, test.observed, strict=True)]


def replayed(name: str, old: Runs, new: Runs, seed: int) -> tuple[Stream, Stream]:
    """(old run into new one, old run into a held-out third of itself); both in shuffled order.

    Two thirds of the old run's queries are predicted from each other's halves for the reference; the model in office is
    fitted on both halves.
    """
    rng = np.random.default_rng(seed)
    part = {key: int(rng.integers(3)) for key in sorted(set(old.keys))}
    halves = [_only(old, [part[key] == i for key in old.keys]) for i in range(3)]
    both = _joined(halves[0], halves[1])
    reference = predicted(halves[0], halves[1]) + predicted(halves[1], halves[0])
    held, fresh = predicted(both, halves[2]), predicted(both, new)
    for rows in (held, fresh):
        rng.shuffle(rows)  # type: ignore[arg-type]
    touched = frozenset(new.groups)
    return Stream(name, reference, held, fresh, touched), Stream(f"{name}, held out", reference, [], held)


def _only(runs: Runs, keep: Sequence[bool]) -> Runs:
    at = np.flatnonzero(keep)
    return Runs([runs.groups[i] for i in at], [runs.keys[i] for i in at], runs.observed[at])


def _joined(a: Runs, b: Runs) -> Runs:
    return Runs(a.groups + b.groups, a.keys + b.keys, np.concatenate((a.observed, b.observed)))


def bfcl(folder: Path, target: str) -> tuple[Runs, Runs]:
    """Endpoints present in the runs of 2024-07-25 and 2024-08-11; target : latency_s or output_tokens."""
    table = pq.read_table(folder / "bfcl" / "single_turn_runs.parquet").to_pylist()
    by_date: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table:
        by_date[str(row["run_date"])].append(row)
    dates = ("2024-07-25", "2024-08-11")
    models = set.intersection(*({row["model"] for row in by_date[date]} for date in dates))
    old, new = (
        _runs(
            [
                (row["category"], row["model"], row["query_id"], row[target])
                for row in by_date[date]
                if row["model"] in models
            ]
        )
        for date in dates
    )
    return old, new


def vllm_builds(folder: Path, before: str = "v0.10.2", after: str = "2025-11-12-main") -> tuple[Runs, Runs]:
    """Seconds of gpt-oss-120b's single calls under two builds of vLLM."""
    table = pq.read_table(folder / "bfcl_multi_turn_vllm" / "runs.parquet").to_pylist()
    rows = [r for r in table if r["model"] == "gpt-oss-120b" and not r["category"].startswith("multi_turn")]
    old, new = (
        _runs([(r["category"], r["model"], r["query_id"], r["total_latency_s"]) for r in rows if r["run"] == run])
        for run in (before, after)
    )
    return old, new


def _runs(rows: list[tuple[str, str, str, float]]) -> Runs:
    groups: list[Group] = [(category, model, "") for category, model, _, _ in rows]
    return Runs(groups, [key for _, _, key, _ in rows], np.array([float(x) for *_, x in rows]))

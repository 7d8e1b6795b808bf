"""Service models from measurements that others made: tables of single passes, and load curves of real servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput

Array = NDArray[np.float64]
KEPT_UP = 0.98  # a stage counts as carried when this share of the requested rate was achieved


@dataclass(frozen=True, slots=True)
class Profile:
    """A fitted service model and how well it fits: median absolute relative errors.

    prefill_base_s : seconds of a prefill besides p per token
    """

    constants: EngineConstants
    prefill_base_s: float
    token_error: float
    prefill_error: float
    points: int


def splitwise_profiles(path: Path) -> dict[tuple[str, str, int], Profile]:
    """(model, hardware, tensor parallel degree) -> profile, from a table of Splitwise's performance model.

    Columns: model, hardware, tensor_parallel, prompt_size, batch_size, token_size, prompt_time and token_time (ms).
    Repeated settings count once, by their median. Patel et al. (2024), Splitwise.
    Raises BadInput when the file lacks a column.
    """
    rows = _read(path, ("model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size"))
    settings: dict[tuple[str, str, int], dict[tuple[int, int, int], list[Mapping[str, Any]]]] = {}
    for row in rows:
        device = (row["model"], row["hardware"], row["tensor_parallel"])
        point = (row["prompt_size"], row["batch_size"], row["token_size"])
        settings.setdefault(device, {}).setdefault(point, []).append(row)
    return {device: _splitwise(points) for device, points in settings.items()}


def _splitwise(points: Mapping[tuple[int, int, int], Sequence[Mapping[str, Any]]]) -> Profile:
    size = np.array(list(points), dtype=np.float64)  # prompt, batch, output
    token_s = np.array([median(r["token_time"] for r in rows) for rows in points.values()]) / 1e3
    prefill_s = np.array([median(r["prompt_time"] for r in rows) for rows in points.values()]) / 1e3
    ones, batch = np.ones(len(size)), size[:, 1]
    kv = batch * (size[:, 0] + size[:, 2] / 2)
    (a, b, c), token_error = fit_nonnegative(np.stack([ones, batch, kv], axis=1), token_s)
    (base, p), prefill_error = fit_nonnegative(np.stack([ones, batch * size[:, 0]], axis=1), prefill_s)
    return Profile(EngineConstants(a, b, c, p), base, token_error, prefill_error, len(size))


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a load test: seconds and tokens per request, requests per second."""

    requested_per_s: float
    achieved_per_s: float
    latency_s: tuple[float, float, float]  # P50, P95, P99
    ttft_s: tuple[float, float, float]
    mean_latency_s: float
    mean_ttft_s: float
    prompt_tokens: float
    output_tokens: float
    output_quantiles: tuple[tuple[float, float], ...]  # (level, tokens)

    @property
    def is_carried(self) -> bool:
        return self.achieved_per_s >= KEPT_UP * self.requested_per_s


def load_curves(path: Path) -> dict[str, list[Stage]]:
    """Configuration -> stages by rising rate, from a table of inference-perf's stage summaries."""
    rows = _read(
        path, ("config", "load_requested_rate", "load_achieved_rate", "request_latency_mean", "output_len_mean")
    )
    curves: dict[str, list[Stage]] = {}
    for row in sorted(rows, key=lambda r: (r["config"], r["load_requested_rate"])):
        curves.setdefault(row["config"], []).append(_stage(row))
    return curves


def _stage(row: Mapping[str, Any]) -> Stage:
    def three(name: str) -> tuple[float, float, float]:
        return row[f"{name}_median"], row[f"{name}_p95"], row[f"{name}_p99"]

    names = {0.01: "p1", 0.05: "p5", 0.1: "p10", 0.25: "p25", 0.5: "median", 0.75: "p75", 0.9: "p90", 0.95: "p95"}
    quantiles = [(0.0, row["output_len_min"]), *((q, row[f"output_len_{n}"]) for q, n in names.items())]
    quantiles += [(0.99, row["output_len_p99"]), (1.0, row["output_len_max"])]
    return Stage(
        row["load_requested_rate"], row["load_achieved_rate"], three("request_latency"), three("time_to_first_token"),
        row["request_latency_mean"], row["time_to_first_token_mean"], row["prompt_len_mean"],
        row["output_len_mean"], tuple(quantiles),
    )  # fmt: skip


def fit_load_curve(stages: Sequence[Stage]) -> Profile:
    """Constants that explain mean time per output token over the carried stages of one server.

    n is the mean number of decoding requests by Little's law, and the prompts that arrive while a token is made stall
    it for p each; kv cannot be told from n when all stages have the same lengths, so c is 0. What the emptiest
    stage's first token takes beyond p is the base.
    Raises BadInput with fewer than three carried stages.
    """
    carried = [s for s in stages if s.is_carried]
    if len(carried) < 3:
        raise BadInput(f"a load curve needs three stages that kept up with the requested rate, got {len(carried)}")
    decode = np.array([s.mean_latency_s - s.mean_ttft_s for s in carried])
    token_s = decode / np.array([max(s.output_tokens - 1, 1.0) for s in carried])
    rate = np.array([s.achieved_per_s for s in carried])
    prompt = np.array([s.prompt_tokens for s in carried])
    work = np.stack([np.ones(len(carried)), rate * decode, rate * prompt * token_s], axis=1)
    (a, b, p), error = fit_nonnegative(work, token_s)
    first = np.array([s.mean_ttft_s for s in carried])
    base = max(float(first[0] - p * prompt[0]), 0.0)
    prefill_error = float(np.median(np.abs((base + p * prompt) / first - 1)))
    return Profile(EngineConstants(a, b, 0.0, p), base, error, prefill_error, len(carried))


def fit_nonnegative(work: Array, seconds: Array) -> tuple[list[float], float]:
    """Non-negative weights of the columns of work (N, C) with the least squared relative error of seconds (N,), and
    that fit's median absolute relative error. All subsets of columns are tried, so C is small."""
    rows = work / seconds[:, None]
    best, least = np.zeros(work.shape[1]), np.inf
    for count in range(1, work.shape[1] + 1):
        for chosen in combinations(range(work.shape[1]), count):
            part, *_ = np.linalg.lstsq(rows[:, chosen], np.ones(len(rows)), rcond=None)
            loss = float(np.sum((rows[:, chosen] @ part - 1) ** 2))
            if np.all(part >= 0) and loss < least * (1 - 1e-9):
                best, least = np.zeros(work.shape[1]), loss
                best[list(chosen)] = part
    return [float(x) for x in best], float(np.median(np.abs(rows @ best - 1)))


def _read(path: Path, needed: Iterable[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    missing = set(needed) - set(table.column_names)
    if missing:
        raise BadInput(f"{path}: no column {', '.join(sorted(missing))}; it has {', '.join(table.column_names)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows

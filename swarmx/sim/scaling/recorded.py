"""Recorded arrivals as scenarios: the Azure conversation trace, a day of ServeGen's clients. Both need pyarrow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.scaling.seasonal import fit_season
from swarmx.sim.scaling.agents import TOKEN_S, agents, job_scenario, learned, seconds, thinned
from swarmx.sim.scaling.fleet import ColdStart
from swarmx.sim.scaling.scenario import Scenario
from swarmx.sim.workload import SimCall, SimWorkflow, Workload

Array = NDArray[np.float64]
DAY_BINS = 144  # windows of ten minutes
AZURE, SERVEGEN = "azure2023_conv.parquet", "servegen_client_windows.parquet"


def columns_of(path: Path, names: tuple[str, ...]) -> list[Array]:
    """Columns of a Parquet file as floats. Raises BadInput when the file cannot be read or lacks one."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as problem:
        raise ImportError("recorded arrivals need pyarrow; install swarmx-scheduler[train]") from problem
    try:
        table = parquet.read_table(path, columns=list(names))
    except (OSError, ArrowException) as problem:
        raise BadInput(f"{path}: cannot be read as Parquet ({problem}); it needs the columns {names}") from problem
    missing = set(names) - set(table.column_names)
    if missing:
        raise BadInput(f"{path}: lacks the columns {sorted(missing)}; it needs {names}")
    return [table.column(name).to_numpy(zero_copy_only=False) for name in names]


def azure_calls(path: Path, seed: int, span_s: float = 1200.0, call_s: float = 8.0, cold_s: float = 60.0) -> Scenario:
    """Single calls at the recorded times and with the recorded answer lengths, from a random place in the hour.

    call_s : mean service time that the mean answer is scaled to
    """
    arrivals, tokens = columns_of(path, ("arrival_s", "output_tokens"))
    scale = call_s / TOKEN_S / float(tokens.mean())
    start = float(np.random.default_rng([seed, 1]).uniform(0, max(arrivals[-1] - span_s, 0.0)))
    chosen = np.flatnonzero((arrivals >= start) & (arrivals < start + span_s))
    other = np.flatnonzero(arrivals < start) if start > span_s else np.flatnonzero(arrivals >= start + span_s)

    def single(i: int) -> SimWorkflow:
        call = SimCall("c", max(float(tokens[i]) * scale, 0.1), type="chat", model="chat")
        return SimWorkflow(f"a{i}", max(float(arrivals[i]) - start, 0.0), (call,), kind="single")

    workload = Workload(tuple(single(int(i)) for i in chosen))
    sample = [single(int(i)) for i in other[:400]]
    base = job_scenario(
        "azure", workload, ("chat",), ColdStart(cold_s, 0.1), learned(sample, seconds, 1.5 * cold_s), call_s
    )
    return replace(base, begin={"chat": 30}, maximum=200)


def servegen_day(
    path: Path,
    seed: int,
    workload: str = "language/m-large",
    mean: float = 0.05,
    span_s: float = 7200.0,
    cold_s: float = 60.0,
) -> Scenario:
    """Agent runs whose rate follows one recorded day of all clients together, squeezed into `span_s`.

    mean : workflows a second that the day's mean rate is scaled to; the seed chooses the day
    """
    names, starts, rates = columns_of(path, ("workload", "window_start_s", "rate_req_s"))
    mine = names == workload
    if not mine.any():
        raise BadInput(f"{path}: no workload {workload!r}; it has {sorted(set(names.tolist()))}")
    windows = np.unique(starts[mine], return_inverse=True)[1]
    total = np.bincount(windows, weights=rates[mine])
    days = max(total.size // DAY_BINS, 1)
    today = seed % days
    day = total[today * DAY_BINS :][:DAY_BINS]
    course = day / day.mean() * mean
    rng = np.random.default_rng([seed, 3])
    arrivals = thinned(
        lambda t: float(course[min(int(t / span_s * course.size), course.size - 1)]), float(course.max()), span_s, rng
    )
    # the days before, or after where there are no two before: what a log would hold of this clock
    order = [(today + shift) % days for shift in range(1, days)]
    others = np.concatenate([total[i * DAY_BINS :][:DAY_BINS] for i in order]) if order else day
    counts = rng.poisson(others / day.mean() * mean * span_s / DAY_BINS)
    base = agents(seed, cold_s=cold_s, name="servegen", arrivals=arrivals)
    return replace(base, season=lambda: fit_season(counts, span_s, DAY_BINS)) if days > 2 else base

"""What is in a log, in numbers: a `Description` that prints as tables or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.logs.fields import log_fields
from swarmx.logs.uses import Use, uses_of
from swarmx.logs.workflows import RecordedWorkflow, workflows_of
from swarmx.types import CallRecord

Floats = NDArray[np.float64]
NAMES = ("status", "model", "device", "replica", "type", "tenant", "priority")
WINDOWS = 12  # of equal length, in which the load over time is told


@dataclass(frozen=True, slots=True)
class Spread:
    """A sample of size n. cv : standard deviation / mean, 0 where the mean is."""

    n: int
    mean: float
    cv: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Window:
    """Load from start_s on, for one of `WINDOWS` equal parts of the log.

    rate : arrivals per second; in_flight : mean number of calls between arrival and end, None without ends
    """

    start_s: float
    calls: int
    rate: float
    in_flight: float | None


@dataclass(frozen=True, slots=True)
class Shape:
    """How workflows branch, over the replayable ones.

    branching : share of workflows in which some call released two or more; merging : in which some call waited for two
    widest : most calls that one call released; tool_s : gaps between the last parent's end and a call's arrival
    problem : why the graph could not be read, if so; everything else is then empty
    """

    calls: Spread | None = None
    branching: float = 0.0
    merging: float = 0.0
    widest: int = 0
    tool_s: Spread | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """A log in numbers. Counts are calls unless named otherwise; times in seconds.

    names : of model, device, replica, type, tenant, priority and status: value -> calls, most frequent first
    output_tokens, latency_s, first_token_s : of ok calls; latency and first token since arrival
    tokens_by : of model and type: value -> output tokens of its ok calls
    cut_at_cap : share of the ok calls with a max_tokens that reached it, None when none has one
    arrival_cv : coefficient of variation of the times between arrivals (1 for a Poisson stream)
    missing : field -> share of calls without it (0 tokens count as missing for the token fields)
    """

    calls: int
    workflows: int
    seconds: float
    names: Mapping[str, Mapping[str, int]]
    output_tokens: Spread | None
    latency_s: Spread | None
    first_token_s: Spread | None
    tokens_by: Mapping[str, Mapping[str, Spread]]
    cut_at_cap: float | None
    arrival_cv: float | None
    load: tuple[Window, ...]
    shape: Shape
    missing: Mapping[str, float]
    uses: tuple[Use, ...]


def describe(records: Sequence[CallRecord]) -> Description:
    """Describe a checked, non-empty log."""
    ok = [r for r in records if r.status == "ok"]
    arrivals = np.sort([r.arrival_s for r in records])
    ends = [r.finished_s for r in records if r.finished_s is not None]
    capped = [r.output_tokens >= r.max_tokens for r in ok if r.max_tokens is not None]
    shape, workflows = _shape(records)
    return Description(
        calls=len(records),
        workflows=len({r.workflow_id or r.call_id for r in records}),
        seconds=float(max([*ends, arrivals[-1]]) - arrivals[0]),
        names={name: _names(records, name) for name in NAMES},
        output_tokens=spread(r.output_tokens for r in ok),
        latency_s=spread(r.finished_s - r.arrival_s for r in ok if r.finished_s is not None),
        first_token_s=spread(r.first_token_s - r.arrival_s for r in ok if r.first_token_s is not None),
        tokens_by={name: _tokens_by(ok, name) for name in ("model", "type")},
        cut_at_cap=sum(capped) / len(capped) if capped else None,
        arrival_cv=_cv(np.diff(arrivals)) if arrivals.size > 2 and arrivals[-1] > arrivals[0] else None,
        load=_load(records),
        shape=shape,
        missing={f.name: _missing(records, f.name, f.default) for f in log_fields()},
        uses=uses_of(records, workflows),
    )


def spread(values: Iterable[float]) -> Spread | None:
    """Moments and quantiles of a sample; None when it is empty."""
    sample = np.array(list(values), dtype=np.float64)
    if not sample.size:
        return None
    p50, p90, p95, p99, top = (float(v) for v in np.quantile(sample, [0.5, 0.9, 0.95, 0.99, 1.0]))
    return Spread(int(sample.size), float(sample.mean()), _cv(sample), p50, p90, p95, p99, top)


def _cv(sample: Floats) -> float:
    mean, deviation = float(sample.mean()), float(sample.std())
    return deviation / mean if mean > 0 else 0.0


def _names(records: Iterable[CallRecord], name: str) -> dict[str, int]:
    values = (getattr(r, name) for r in records)
    return dict(Counter("" if v is None else str(v) for v in values).most_common())


def _tokens_by(ok: Sequence[CallRecord], name: str) -> dict[str, Spread]:
    groups: dict[str, list[int]] = {}
    for record in ok:
        groups.setdefault(getattr(record, name) or "", []).append(record.output_tokens)
    spreads = {key: spread(values) for key, values in sorted(groups.items(), key=lambda g: -len(g[1]))}
    return {key: value for key, value in spreads.items() if value is not None}


def _missing(records: Sequence[CallRecord], name: str, default: object) -> float:
    """Share of calls at the field's default. Names that default to a word (tenant, priority) are never missing."""
    if default in ("default", "normal"):
        return 0.0
    lacking = sum(getattr(r, name) == default or getattr(r, name) is None for r in records)
    return float(lacking / len(records))


def _load(records: Sequence[CallRecord]) -> tuple[Window, ...]:
    starts = np.array([r.arrival_s for r in records])
    ends = np.array([np.nan if r.finished_s is None else r.finished_s for r in records])
    first, last = float(starts.min()), float(np.nanmax(np.concatenate([starts, ends])))
    if last <= first:
        return ()
    edges = np.linspace(first, last, WINDOWS + 1)
    counts = np.histogram(starts, edges)[0]
    width = (last - first) / WINDOWS
    known = ~np.isnan(ends)
    windows = []
    for low, high, calls in zip(edges[:-1], edges[1:], counts, strict=True):
        overlap = np.clip(np.minimum(ends[known], high) - np.maximum(starts[known], low), 0, None).sum()
        in_flight = float(overlap / width) if known.any() else None
        windows.append(Window(float(low), int(calls), float(calls / width), in_flight))
    return tuple(windows)


def _shape(records: Sequence[CallRecord]) -> tuple[Shape, list[RecordedWorkflow]]:
    try:
        workflows = workflows_of(records)
    except BadInput as problem:
        return Shape(problem=str(problem)), []
    if not workflows:
        return Shape(problem="no call with status ok"), []
    released = [Counter(p for c in w.calls for p in c.parents) for w in workflows]
    widest = [max(children.values(), default=0) for children in released]
    merges = [any(len(c.parents) > 1 for c in w.calls) for w in workflows]
    shape = Shape(
        calls=spread(len(w.calls) for w in workflows),
        branching=sum(width > 1 for width in widest) / len(workflows),
        merging=sum(merges) / len(workflows),
        widest=max(widest),
        tool_s=spread(c.delay_s for w in workflows for c in w.calls if c.parents),
    )
    return shape, workflows

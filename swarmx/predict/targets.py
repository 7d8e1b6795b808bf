"""What is learned from a log: a call's output tokens, the calls it still causes, the work its workflow still holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.types import CallRecord

TOKENS = "tokens"
WORK = "work"  # output tokens of the workflow's later calls
CALLS = "calls:"  # followed by a model's name: calls this one still causes there


@dataclass(frozen=True, slots=True)
class Targets:
    """names : T target names, `tokens` first; values : (N, T) in natural units (tokens, calls), never negative"""

    names: tuple[str, ...]
    values: NDArray[np.float64]

    def column(self, name: str) -> NDArray[np.float64]:
        return self.values[:, self.names.index(name)]


def usable(records: Sequence[CallRecord]) -> list[int]:
    """Rows to learn from: calls that ended well. A cancelled or timed-out call hides how long it would have been."""
    return [i for i, record in enumerate(records) if record.status == "ok"]


def targets(records: Sequence[CallRecord], rows: Sequence[int]) -> Targets:
    """Targets of the given rows of a log; the other rows still count as work of their workflows.

    A log in which no workflow has a second call yields the tokens alone.
    """
    calls = descendants(records)
    work = remaining_tokens(records)
    models = sorted({model for count in calls for model in count})
    names = (TOKENS, WORK, *(CALLS + model for model in models)) if models else (TOKENS,)
    values = np.zeros((len(rows), len(names)))
    for out, i in enumerate(rows):
        values[out, 0] = records[i].output_tokens
        if models:
            values[out, 1] = work[i]
            values[out, 2:] = [calls[i].get(model, 0) for model in models]
    return Targets(names, values)


def descendants(records: Sequence[CallRecord]) -> list[dict[str, int]]:
    """For each record, model -> calls below it in its workflow's tree of parents (a cycle ends where it begins)."""
    place = {(r.workflow_id, r.call_id): i for i, r in enumerate(records)}
    found: list[dict[str, int]] = [{} for _ in records]
    for i, record in enumerate(records):
        seen, at = {i}, place.get((record.workflow_id, record.parent_id or ""))
        while at is not None and at not in seen:
            seen.add(at)
            found[at][record.model] = found[at].get(record.model, 0) + 1
            at = place.get((records[at].workflow_id, records[at].parent_id or ""))
    return found


def remaining_tokens(records: Sequence[CallRecord]) -> NDArray[np.float64]:
    """Output tokens of the calls of the same workflow that arrive later than each record, (N,)."""
    flows: dict[str, list[int]] = defaultdict(list)
    for i, record in enumerate(records):
        flows[record.workflow_id or record.call_id].append(i)
    rest = np.zeros(len(records))
    for rows in flows.values():
        arrivals = np.array([records[i].arrival_s for i in rows])
        tokens = np.array([records[i].output_tokens for i in rows], dtype=float)
        for i, arrival in zip(rows, arrivals, strict=True):
            rest[i] = tokens[arrivals > arrival].sum()
    return rest

"""From rows to workflows: who waited for whom, and how long the tools in between took."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from math import inf

from swarmx.errors import BadInput
from swarmx.types import CallRecord, Priority

Parents = Mapping[str, tuple[str, ...]]  # call id -> ids of the calls that had to end before it


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a workflow, with what released it.

    parents : ids of all calls that must end before this one arrives; empty for a root
    delay_s : seconds from the end of the last parent to this call's arrival (tools, the agent's own code);
        for a root from the workflow's arrival; never negative
    early_s : seconds that the call arrived *before* its last parent ended, where the log says so; delay_s is
        then 0 and a replay releases the call that much later than the log did
    """

    record: CallRecord
    parents: tuple[str, ...]
    delay_s: float
    early_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedWorkflow:
    """One run of an agent, ready to be replayed; in `calls` every parent stands before its children.

    dropped : calls of the log that ended with another status than ok and are therefore not in `calls`
    """

    id: str
    arrival_s: float
    tenant: str
    priority: Priority
    calls: tuple[RecordedCall, ...]
    dropped: int = 0


def workflows_of(records: Iterable[CallRecord]) -> list[RecordedWorkflow]:
    """The log's workflows in order of arrival, each with its call graph.

    Parents are `waits_for`, else `parent_id`. If no call of a workflow has either, they are inferred from
    time (`parents_from_time`). With `parent_id` alone a merge is known to wait for one of its branches only.

    Only calls with status ok can be replayed, since nobody knows how long the answer of another would have
    been. A dropped call's children wait for its parents instead, and the time it took becomes part of their
    delay. Workflows in which no call went well are left out.

    Raises BadInput, naming the workflow, for a repeated call id, an unknown parent, a cycle, or a parent
    without an end.
    """
    groups: dict[str, list[CallRecord]] = {}
    for record in records:
        groups.setdefault(record.workflow_id or record.call_id, []).append(record)
    found = [_workflow(name, group) for name, group in groups.items()]
    return sorted((w for w in found if w.calls), key=lambda w: (w.arrival_s, w.id))


def parents_from_time(records: Sequence[CallRecord]) -> dict[str, tuple[str, ...]]:
    """Call id -> the calls it may have waited for: those that ended before it arrived, less their ancestors.

    Two calls that overlap surely did not wait for each other. Two that do not overlap may still be
    independent: a merge and a branch that merely came later look the same, so this graph has every true edge
    or a path in its place, and some false ones. A call without `finished_s` is nobody's parent here.
    O(n log n) plus the size of the answer.
    """
    calls = sorted(records, key=lambda r: (r.arrival_s, _end(r), r.call_id))
    places = ended_before([(r.arrival_s, _end(r)) for r in calls])
    return {r.call_id: tuple(calls[p].call_id for p in before) for r, before in zip(calls, places, strict=True)}


def ended_before(intervals: Sequence[tuple[float, float]]) -> list[tuple[int, ...]]:
    """For each (start, end) the places of those that ended by its start, less those implied by another of them.

    intervals : in increasing order; an end of inf is never over. Of two that last no time at the same moment the first
        in order counts as the earlier. This is the transitive reduction of their interval order.
    """
    ended = sorted((end, place) for place, (_, end) in enumerate(intervals) if end < inf)
    latest = list(accumulate((place for _, place in ended), max))
    found: list[tuple[int, ...]] = []
    for place, (start, _) in enumerate(intervals):
        stop = bisect_left(ended, (start, place))  # everything before here had ended
        if not stop:
            found.append(())
            continue
        # of those that had ended, the last to start: whoever ended before it started is implied by it
        last = latest[stop - 1]
        first = bisect_right(ended, (intervals[last][0], len(intervals)))
        found.append(tuple(sorted({p for _, p in ended[first:stop]} | {last})))
    return found


def _workflow(name: str, group: Sequence[CallRecord]) -> RecordedWorkflow:
    by_id = {r.call_id: r for r in group}
    if len(by_id) < len(group):
        call_id, _ = Counter(r.call_id for r in group).most_common(1)[0]
        raise BadInput(f"workflow {name!r}: call id {call_id!r} occurs more than once; ids must be unique")
    parents = _parents(name, group)
    order = _parents_first(name, by_id, parents)
    start = min(min(r.arrival_s, inf if r.workflow_arrival_s is None else r.workflow_arrival_s) for r in group)
    calls = _replayable(name, [by_id[i] for i in order], parents, start)
    first = min(group, key=lambda r: (r.arrival_s, r.call_id))
    return RecordedWorkflow(name, start, first.tenant, first.priority, calls, len(group) - len(calls))


def _parents(name: str, group: Sequence[CallRecord]) -> Parents:
    """Given by the log where it has any, else inferred. Raises BadInput for a parent outside the workflow."""
    if len(group) > 1 and not any(r.waits_for or r.parent_id for r in group):
        for record in group:
            if record.status == "ok" and record.finished_s is None:
                raise BadInput(
                    f"workflow {name!r}: call {record.call_id!r} has no finished_s, so nobody can "
                    "tell which calls waited for it; the log needs finished_s"
                )
        return parents_from_time(group)
    parents = {r.call_id: r.waits_for or ((r.parent_id,) if r.parent_id else ()) for r in group}
    for call_id, ids in parents.items():
        for parent in ids:
            if parent not in parents:
                raise BadInput(
                    f"workflow {name!r}: call {call_id!r} waits for {parent!r}, which is no call of this "
                    "workflow; import the whole workflow or clear the field"
                )
    return parents


def _parents_first(name: str, by_id: Mapping[str, CallRecord], parents: Parents) -> list[str]:
    """A topological order, by arrival where the graph leaves a choice. Raises BadInput for a cycle."""
    sorter = TopologicalSorter(parents)
    try:
        sorter.prepare()
    except CycleError as cycle:
        raise BadInput(f"workflow {name!r}: its calls wait for each other: {' -> '.join(cycle.args[1])}") from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda i: (by_id[i].arrival_s, i))
        order += ready
        sorter.done(*ready)
    return order


def _replayable(name: str, ordered: Sequence[CallRecord], parents: Parents, start: float) -> tuple[RecordedCall, ...]:
    ok = {r.call_id: r for r in ordered if r.status == "ok"}
    stand_ins: dict[str, tuple[str, ...]] = {}  # call -> itself, or for a dropped one the calls it had waited for
    calls: list[RecordedCall] = []
    for record in ordered:
        kept = tuple(dict.fromkeys(s for p in parents[record.call_id] for s in stand_ins[p]))
        stand_ins[record.call_id] = (record.call_id,) if record.call_id in ok else kept
        if record.call_id not in ok:
            continue
        endless = next((p for p in kept if ok[p].finished_s is None), None)
        if endless is not None:
            raise BadInput(
                f"workflow {name!r}: call {endless!r} has no finished_s, yet {record.call_id!r} waits for "
                "it; the log needs the time at which it ended"
            )
        gap = record.arrival_s - max((_end(ok[p]) for p in kept), default=start)
        calls.append(RecordedCall(record, kept, max(gap, 0.0), max(-gap, 0.0)))
    return tuple(calls)


def _end(record: CallRecord) -> float:
    return inf if record.finished_s is None else record.finished_s

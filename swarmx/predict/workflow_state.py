"""A workflow half way: which of its calls are over, which are live, and which event has just happened.

The same record serves training (states cut out of a log) and run time (a state moved on by events), so that what is
learned from is what will be seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarmx.types import Call, CallRecord, Prediction

MOST_STATES = 200  # of one workflow that are learned from, evenly spaced over its events
SAME_TIME_S = 1e-6  # a call that arrives this much before an end still counts as released by it


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a workflow. output_tokens : None while the call is live; expected : what was predicted when it
    arrived, where it was"""

    id: str
    model: str
    type: str | None = None
    prompt_tokens: int = 0
    output_tokens: float | None = None
    expected: Prediction | None = None

    @classmethod
    def of(cls, call: Call, expected: Prediction | None = None) -> Step:
        """A call that has just arrived."""
        return cls(call.id, call.model, call.type, call.prompt_tokens, None, expected)


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """What is known of a workflow at an event.

    steps : calls released so far, in order of arrival, never empty; ended : id of the call that has just ended, None
    when the workflow has just begun
    """

    steps: tuple[Step, ...]
    ended: str | None = None

    @classmethod
    def begin(cls, first: Step) -> WorkflowState:
        """A workflow whose first call has just arrived."""
        return cls((first,))

    @property
    def event(self) -> Step:
        """The call that the last event is about: the one that ended, else the root."""
        return next((step for step in self.steps if step.id == self.ended), self.steps[0])

    def arrived(self, step: Step) -> WorkflowState:
        """The state after one more call has been released; one that is known already changes nothing."""
        if any(known.id == step.id for known in self.steps):
            return self
        return replace(self, steps=(*self.steps, step))

    def finished(self, call_id: str, output_tokens: float) -> WorkflowState:
        """The state after a call has ended; an unknown id changes nothing."""
        if all(step.id != call_id for step in self.steps):
            return self
        steps = (replace(s, output_tokens=output_tokens) if s.id == call_id else s for s in self.steps)
        return WorkflowState(tuple(steps), call_id)


@dataclass(frozen=True, slots=True)
class Observed:
    """A state of a recorded workflow and what came of it. Indices are places in the records.

    event, root : the call that the event is about, the workflow's first call
    finished, live : calls over and released by then; coming : calls that arrive later
    released : calls that the event's call released directly
    """

    root: int
    event: int
    is_root: bool
    finished: tuple[int, ...]
    live: tuple[int, ...]
    coming: tuple[int, ...]
    released: tuple[int, ...]


def observed_states(records: Sequence[CallRecord]) -> list[Observed]:
    """The beginning of every workflow, and the end of each of its calls, at most `MOST_STATES` of one workflow.

    Records without `finished_s` are released but never seen to end. A call is released by its `parent_id`; in a
    workflow that names no parents, by the call that ended last before it arrived.
    """
    flows: dict[str, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        flows[record.workflow_id or record.call_id].append(place)
    found: list[Observed] = []
    for places in flows.values():
        found += _of_workflow(records, sorted(places, key=lambda i: (records[i].arrival_s, records[i].call_id)))
    return found


def _of_workflow(records: Sequence[CallRecord], places: list[int]) -> list[Observed]:
    root, released = places[0], _released(records, places)
    arrivals = [records[i].arrival_s for i in places]
    ends = sorted((end, i) for i in places if (end := records[i].finished_s) is not None)
    out = [Observed(root, root, True, (), (root,), tuple(places[1:]), tuple(released[root]))]
    step = max(1, -(-len(ends) // MOST_STATES))
    for n in range(0, len(ends), step):
        end, event = ends[n]
        over = {i for _, i in ends[: n + 1]}
        here = bisect_right(arrivals, end - SAME_TIME_S)
        known = [i for i in places[:here] if i in over or i not in released[event]]
        known += [i for i in places[here:] if i in over]  # calls that last no time
        gone = set(known)
        out.append(
            Observed(
                root, event, False,
                tuple(i for i in known if i in over), tuple(i for i in known if i not in over),
                tuple(i for i in places if i not in gone), tuple(released[event]),
            )
        )  # fmt: skip
    return out


def _released(records: Sequence[CallRecord], places: Sequence[int]) -> dict[int, list[int]]:
    """Place of each call -> places of those that it released."""
    by_id = {records[i].call_id: i for i in places}
    out: dict[int, list[int]] = {i: [] for i in places}
    named = any(records[i].parent_id for i in places)
    ends = sorted((end, i) for i in places if (end := records[i].finished_s) is not None)
    for i in places:
        parent = by_id.get(records[i].parent_id or "") if named else None
        if not named and (before := bisect_right(ends, (records[i].arrival_s + SAME_TIME_S, len(records)))):
            parent = next((j for _, j in reversed(ends[:before]) if j != i), None)
        if parent is not None and parent != i:
            out[parent].append(i)
    return out

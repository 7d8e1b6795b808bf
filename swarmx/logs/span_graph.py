"""Which calls of a trace a call had waited for, read off the span tree and the clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from swarmx.logs.spans import Span
from swarmx.logs.workflows import ended_before


class TraceGraph:
    """The spans of one trace as a tree, of which some are LLM calls.

    A call waits for what ended before it began under the same parent span; where there is nothing, for what its parent
    span waited for, and so on up; an LLM call above it that had ended counts as well. Work in spans that overlap is
    taken as independent, so parallel agents stay parallel although one's first call ends before the other's second.

    spans : all spans of the trace; calls : ids of those that are LLM calls
    Raises ValueError when spans are each other's parents or an id occurs twice.
    """

    def __init__(self, spans: Sequence[Span], calls: set[str]) -> None:
        self.spans: Mapping[str, Span] = {s.id: s for s in spans}
        if len(self.spans) < len(spans):
            raise ValueError(f"trace {spans[0].trace!r}: a span id occurs twice; export each span once")
        self.calls = calls
        self.order = _parents_first(spans, self.spans)
        self.inside = self._calls_inside()
        self.before = self._siblings_before()

    def waits(self) -> dict[str, tuple[str, ...]]:
        """Call id -> ids of the calls it waited for directly, the last to end last."""
        found: dict[str, tuple[str, ...]] = {}
        for call in sorted(self.calls, key=lambda i: (self.spans[i].start_s, self.spans[i].end_s, i)):
            start = self.spans[call].start_s
            waited = {i for i in self._released_by(call, found) if self.spans[i].end_s <= start and i in found}
            found[call] = tuple(sorted(waited, key=lambda i: (self.spans[i].end_s, i)))
        return found

    def wrappers(self) -> set[str]:
        """LLM calls during which an LLM call below them began: the same call seen by an outer layer."""
        outer: set[str] = set()
        for call in self.calls:
            above = self._parent(call)
            while above is not None:
                if above in self.calls and self.spans[above].end_s > self.spans[call].start_s:
                    outer.add(above)
                above = self._parent(above)
        return outer

    def _released_by(self, call: str, found: Mapping[str, tuple[str, ...]]) -> set[str]:
        node: str | None = call
        while node is not None:
            released = {i for sibling in self.before[node] for i in self._last_calls(sibling, found)}
            above = self._parent(node)
            if not released and above in self.calls and self.spans[above].end_s <= self.spans[call].start_s:
                released = {above}
            if released:
                return released
            node = above
        return set()

    def _last_calls(self, node: str, found: Mapping[str, tuple[str, ...]]) -> set[str]:
        """Calls at or below a span that no other call there waited for."""
        inside = self.inside[node]
        return inside - {waited for i in inside for waited in found.get(i, ())}

    def _parent(self, node: str) -> str | None:
        parent = self.spans[node].parent
        return parent if parent in self.spans else None

    def _calls_inside(self) -> dict[str, set[str]]:
        inside: dict[str, set[str]] = {i: {i} & self.calls for i in self.spans}
        for node in reversed(self.order):
            parent = self._parent(node)
            if parent is not None:
                inside[parent] |= inside[node]
        return inside

    def _siblings_before(self) -> dict[str, tuple[str, ...]]:
        """Span -> those siblings with LLM calls that had ended when it began, less the ones that others imply."""
        families: dict[str | None, list[str]] = defaultdict(list)
        for node in self.order:
            if self.inside[node]:
                families[self._parent(node)].append(node)
        before: dict[str, tuple[str, ...]] = {}
        for family in families.values():
            family.sort(key=lambda i: (self.spans[i].start_s, self.spans[i].end_s, i))
            intervals = [(self.spans[i].start_s, self.spans[i].end_s) for i in family]
            for node, places in zip(family, ended_before(intervals), strict=True):
                before[node] = tuple(family[p] for p in places)
        return before


def _parents_first(spans: Sequence[Span], by_id: Mapping[str, Span]) -> list[str]:
    """Span ids, every parent before its children. Raises ValueError for a cycle."""
    children: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        if span.parent in by_id:
            children[span.parent or ""].append(span.id)
    order = [s.id for s in spans if s.parent not in by_id]
    for node in order:  # grows while it is walked
        order += children[node]
    if len(order) < len(spans):
        raise ValueError(f"trace {spans[0].trace!r}: spans are each other's parents; the tree has no root")
    return order

"""Level by level, with a barrier between levels."""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from swarmx.callgraph import CallGraph, GraphBook
from swarmx.ordering.contract import Asked
from swarmx.waiting import Waiting


class SpoqWaves:
    """All calls of a graph's topological level before any of the next; oldest workflow first.

    A call whose level is not open yet waits with an infinite key, even if its own parents have ended. A level opens
    when every call of the one below has ended in any way, so a failed call cannot hold its workflow for ever. A call
    without a declared graph has no barrier. After SPOQ (arXiv 2606.03115), for comparison: `ready_list` never waits.
    """

    def __init__(self, graphs: GraphBook | None = None, limit: int = 100_000) -> None:
        self.graphs = GraphBook() if graphs is None else graphs
        self.limit = limit
        self._left: OrderedDict[str, list[int]] = OrderedDict()  # workflow -> calls not ended, per level
        self._held: dict[str, set[str]] = {}  # workflow -> calls behind the barrier
        self._freed: list[str] = []

    def key(self, asked: Asked) -> float:
        return asked.call.workflow_start_s if self._is_open(asked.call.workflow, asked.call.id) else inf

    def arrived(self, asked: Asked) -> None:
        call = asked.call
        graph = self.graphs.get(call.workflow)
        if graph is None or call.id not in graph.level:
            return
        if call.workflow not in self._left:
            self._left[call.workflow] = _sizes(graph)
            if len(self._left) > self.limit:
                self._held.pop(self._left.popitem(last=False)[0], None)
        if not self._is_open(call.workflow, call.id):
            self._held.setdefault(call.workflow, set()).add(call.id)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        if over:
            self._ended(waiting)

    def withdrawn(self, waiting: Waiting, now: float) -> None:
        self._ended(waiting)

    def stale(self) -> list[str]:
        freed, self._freed = self._freed, []
        return freed

    def _ended(self, waiting: Waiting) -> None:
        call = waiting.call
        graph, left = self.graphs.get(call.workflow), self._left.get(call.workflow)
        if graph is None or left is None or call.id not in graph.level:
            return
        left[graph.level[call.id]] -= 1
        held = self._held.get(call.workflow, set())
        held.discard(call.id)
        opened = sorted(name for name in held if self._is_open(call.workflow, name))
        held.difference_update(opened)
        self._freed += opened
        if not any(left):
            self._left.pop(call.workflow, None)
            self._held.pop(call.workflow, None)

    def _is_open(self, workflow: str, call_id: str) -> bool:
        graph, left = self.graphs.get(workflow), self._left.get(workflow)
        if graph is None or left is None or call_id not in graph.level:
            return True
        return not any(left[: graph.level[call_id]])


def _sizes(graph: CallGraph) -> list[int]:
    sizes = [0] * (1 + max(graph.level.values()))
    for level in graph.level.values():
        sizes[level] += 1
    return sizes

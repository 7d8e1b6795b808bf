"""Least latest start: a call with much work behind it goes earlier."""

from __future__ import annotations

from swarmx.callgraph import GraphBook
from swarmx.ordering.contract import Asked


class CriticalPath:
    """Key = workflow arrival - path_weight * seconds on the longest path from this call to the workflow's end.

    With one allowance for all workflows this is the order of latest start times. The path comes from the workflow's
    declared or inferred graph; without one, the expected seconds of all that the workflow still holds stand in.
    A fixed key: nobody is overtaken by a call whose workflow arrives later by more than path_weight * its path.
    """

    def __init__(self, graphs: GraphBook | None = None, path_weight: float = 1.0) -> None:
        self.graphs = GraphBook() if graphs is None else graphs
        self.path_weight = path_weight

    def key(self, asked: Asked) -> float:
        return asked.call.workflow_start_s - self.path_weight * path_s(self.graphs, asked)


def path_s(graphs: GraphBook, asked: Asked) -> float:
    """Seconds on the longest path from the call to its workflow's end, as far as known."""
    graph = graphs.get(asked.call.workflow)
    rank = None if graph is None else graph.rank.get(asked.call.id)
    return asked.workflow_tokens * asked.token_s if rank is None else rank

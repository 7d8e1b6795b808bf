"""Every call as soon as it can run, longest path behind it first."""

from __future__ import annotations

from swarmx.callgraph import GraphBook
from swarmx.ordering.contract import Asked
from swarmx.ordering.critical_path import path_s


class ReadyList:
    """List scheduling without barriers: key = - (longest path from the call to its workflow's end).

    On m equal slots the makespan of one graph is at most critical path * (1 - 1/m) + work / m (Graham 1966), whatever
    the order; this order is HEFT's (Topcuoglu et al. 2002) and highest-level-first. Meant for batches of graphs that
    are wanted as a whole; among graphs that keep arriving short ones starve, and `critical_path` is the one to take.
    """

    def __init__(self, graphs: GraphBook | None = None) -> None:
        self.graphs = GraphBook() if graphs is None else graphs

    def key(self, asked: Asked) -> float:
        return -path_s(self.graphs, asked)

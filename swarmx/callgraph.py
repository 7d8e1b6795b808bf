"""Agent execution graphs: which call waits for which, how much work lies behind each, and plans that cannot be run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from swarmx.errors import BadInput

MAX_GRAPHS = 100_000


@dataclass(frozen=True, slots=True)
class Node:
    """A call of a plan. parents : ids of those that must end first; work : expected seconds, or any other unit"""

    parents: tuple[str, ...] = ()
    work: float = 1.0


@dataclass(frozen=True)
class CallGraph:
    """A plan: call id -> node. Raises BadInput for an unknown parent, and naming the cycle when there is one."""

    nodes: Mapping[str, Node]
    order: tuple[str, ...] = field(init=False, repr=False, compare=False)  # parents first

    def __post_init__(self) -> None:
        for name, node in self.nodes.items():
            for parent in node.parents:
                if parent not in self.nodes:
                    raise BadInput(f"call {name!r} waits for {parent!r}, which is not in the plan")
            if not 0 <= node.work < float("inf"):
                raise BadInput(f"call {name!r}: work must be finite and not negative, got {node.work}")
        object.__setattr__(self, "order", _parents_first(self.nodes))

    @cached_property
    def level(self) -> dict[str, int]:
        """Topological level: 0 for roots, else one more than the deepest parent."""
        out: dict[str, int] = {}
        for name in self.order:
            out[name] = 1 + max((out[p] for p in self.nodes[name].parents), default=-1)
        return out

    @cached_property
    def rank(self) -> dict[str, float]:
        """Work on the longest path from the call to the end, its own included (HEFT's upward rank)."""
        behind = dict.fromkeys(self.order, 0.0)
        out: dict[str, float] = {}
        for name in reversed(self.order):
            out[name] = self.nodes[name].work + behind[name]
            for parent in self.nodes[name].parents:
                behind[parent] = max(behind[parent], out[name])
        return out

    @property
    def critical_path(self) -> float:
        return max(self.rank.values(), default=0.0)

    @property
    def work(self) -> float:
        return sum(node.work for node in self.nodes.values())

    def children(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, node in self.nodes.items():
            for parent in node.parents:
                out[parent].append(name)
        return out


def _parents_first(nodes: Mapping[str, Node]) -> tuple[str, ...]:
    children: dict[str, list[str]] = {name: [] for name in nodes}
    left = {name: len(set(node.parents)) for name, node in nodes.items()}
    for name, node in nodes.items():
        for parent in set(node.parents):
            children[parent].append(name)
    ready = [name for name in nodes if not left[name]]
    for name in ready:  # grows while it is read
        for child in children[name]:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    if len(ready) < len(nodes):
        raise BadInput(f"the plan can never end: {' -> '.join(_cycle(nodes, set(ready)))} wait for each other")
    return tuple(ready)


def _cycle(nodes: Mapping[str, Node], done: set[str]) -> list[str]:
    """A cycle among the calls that never become ready, first call repeated at the end."""
    name = next(n for n in nodes if n not in done)
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(p for p in nodes[name].parents if p not in done)
    return [*path[path.index(name) :], name]


@dataclass(frozen=True, slots=True)
class PlanGate:
    """Refuses plans that cannot be served. most_calls, longest : limits on a plan's calls and longest chain of calls

    models : models that are served; None does not check
    """

    most_calls: int = 10_000
    longest: int = 1_000
    models: frozenset[str] | None = None

    def check(
        self,
        nodes: Mapping[str, Node],
        deadline_s: float | None = None,
        fastest: float = 1.0,
        models: Mapping[str, str] | None = None,
    ) -> CallGraph:
        """The plan as a graph, or BadInput with the reason: a cycle (named), an unknown parent or model, a limit, or a
        deadline below the critical path.

        deadline_s : seconds that the plan has; fastest : speed of the fastest replica, the unit of work being seconds
            at speed 1; models : call id -> model
        """
        if not nodes or len(nodes) > self.most_calls:
            raise BadInput(f"a plan needs 1 to {self.most_calls} calls, this one has {len(nodes)}")
        graph = CallGraph(nodes)
        depth = 1 + max(graph.level.values())
        if depth > self.longest:
            raise BadInput(f"the plan's longest chain has {depth} calls; at most {self.longest} are allowed")
        for name, model in (models or {}).items():
            if self.models is not None and model not in self.models:
                raise BadInput(f"call {name!r} asks for model {model!r}; served are {', '.join(sorted(self.models))}")
        if deadline_s is not None and graph.critical_path / fastest > deadline_s:
            raise BadInput(
                f"the plan's critical path takes {graph.critical_path / fastest:g} s on the fastest replica, and the "
                f"deadline is {deadline_s:g} s"
            )
        return graph


class GraphBook:
    """Graphs by workflow id, oldest forgotten beyond `limit`; disciplines that need structure look here."""

    def __init__(self, graphs: Mapping[str, CallGraph] | None = None, limit: int = MAX_GRAPHS) -> None:
        self.limit = limit
        self._graphs: OrderedDict[str, CallGraph] = OrderedDict(graphs or {})

    def __len__(self) -> int:
        return len(self._graphs)

    def declare(self, workflow: str, graph: CallGraph) -> None:
        self._graphs[workflow] = graph
        if len(self._graphs) > self.limit:
            self._graphs.popitem(last=False)

    def get(self, workflow: str) -> CallGraph | None:
        return self._graphs.get(workflow)


def chain(names: Sequence[str], works: Sequence[float]) -> CallGraph:
    """A plan in which each call waits for the one before."""
    parents: list[tuple[str, ...]] = [(), *((name,) for name in names[:-1])]
    return CallGraph({n: Node(p, w) for n, p, w in zip(names, parents, works, strict=True)})

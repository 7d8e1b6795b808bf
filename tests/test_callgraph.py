"""Call graphs: levels, ranks, cycles by name, and plans that the gate turns away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.callgraph import CallGraph, GraphBook, Node, PlanGate, chain
from swarmx.errors import BadInput


@st.composite
def graphs(draw: st.DrawFn) -> CallGraph:
    nodes: dict[str, Node] = {}
    for i in range(draw(st.integers(1, 15))):
        parents = draw(st.sets(st.sampled_from(sorted(nodes)), max_size=3)) if nodes else set()
        nodes[f"n{i}"] = Node(tuple(sorted(parents)), draw(st.floats(0, 10)))
    return CallGraph(nodes)


@given(graphs())
def test_levels_and_ranks_follow_the_edges(graph: CallGraph) -> None:
    for name, node in graph.nodes.items():
        for parent in node.parents:
            assert graph.level[parent] < graph.level[name]
            assert graph.rank[parent] >= graph.nodes[parent].work + graph.rank[name] - 1e-9
    assert graph.critical_path <= graph.work + 1e-9
    assert graph.critical_path >= max(node.work for node in graph.nodes.values())


def test_a_cycle_is_named() -> None:
    with pytest.raises(BadInput, match=r"b -> c -> d -> b|c -> d -> b -> c|d -> b -> c -> d|b -> d -> c -> b"):
        CallGraph({"a": Node(), "b": Node(("a", "d")), "c": Node(("b",)), "d": Node(("c",)), "e": Node(("d",))})


def test_an_unknown_parent_is_named() -> None:
    with pytest.raises(BadInput, match="call 'a' waits for 'ghost', which is not in the plan"):
        CallGraph({"a": Node(("ghost",))})


def test_the_gate_turns_away_what_cannot_be_served() -> None:
    gate = PlanGate(most_calls=3, longest=2, models=frozenset({"m"}))
    plan = {"a": Node((), 4.0), "b": Node(("a",), 6.0)}
    assert gate.check(plan).critical_path == 10.0
    with pytest.raises(BadInput, match="critical path takes 5 s on the fastest replica, and the deadline is 4 s"):
        gate.check(plan, deadline_s=4.0, fastest=2.0)
    with pytest.raises(BadInput, match="asks for model 'x'; served are m"):
        gate.check(plan, models={"b": "x"})
    with pytest.raises(BadInput, match="longest chain has 3 calls"):
        gate.check({**plan, "c": Node(("b",))})
    with pytest.raises(BadInput, match="1 to 3 calls, this one has 4"):
        gate.check({f"n{i}": Node() for i in range(4)})


def test_the_book_forgets_the_oldest_graph() -> None:
    book = GraphBook(limit=2)
    for name in "abc":
        book.declare(name, chain([name], [1.0]))
    assert book.get("a") is None
    assert book.get("c") is not None
    assert len(book) == 2

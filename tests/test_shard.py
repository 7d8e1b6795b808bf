"""Routers that share a pool: who gets what has become free, and that nothing hangs on a router that does not answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.shard import DUE, Shard
from swarmx.sim import CallTable, ReplicaSpec, SimCall, SimWorkflow, Timing, Workload, cluster, simulate
from swarmx.sim.arms import Oracle
from swarmx.types import Call, CallRecord, Decision, Offer, Prediction, ReplicaState, Start

KNOWN = {"d": EngineConstants(a=1.0)}
TEN = Prediction(QuantileGrid.point(10.0), "oracle")
OLDER, NEWER = (1, 0.5, 0.5, "older"), (1, 90.0, 90.0, "newer")


def state(at_s: float, running: int = 0, name: str = "r0") -> ReplicaState:
    return ReplicaState(name, "m", "d", running=running, reported_s=at_s)


def busy(me: str = "a", waiting: int = 1) -> Shard:
    """A router whose call runs on the only replica since 0; others wait, which came at 1, 2, ..."""
    shard = Shard(preset("late", engines=KNOWN), me)
    shard.replicas_changed([state(0.0)], 0.0)
    for i in range(waiting + 1):
        shard.arrive(Call(f"{me}{i}", "m", float(i)), TEN, float(i))
    return shard


def ends(shard: Shard, at_s: float = 10.0) -> list[Decision]:
    record = CallRecord(f"{shard.me}0", "m", 0.0, "ok", output_tokens=10)
    return shard.finished(record, at_s, state=state(at_s))


def started(decisions: list[Decision]) -> list[str]:
    return [d.call_id for d in decisions if isinstance(d, Start)]


def offered(decisions: list[Decision]) -> list[Offer]:
    return [d for d in decisions if isinstance(d, Offer)]


def test_what_gets_free_is_offered_to_the_router_with_the_more_urgent_call() -> None:
    shard = busy()
    shard.heard("b", OLDER, 9.0)
    shard.heard("c", NEWER, 9.0)
    (offer,) = ends(shard)
    assert offer == Offer(state(10.0), "b", "a", (1, *offer.head[1:]), ())  # type: ignore[union-attr,index]
    assert offer.head is not None
    assert offer.head[3] == "a1"


@pytest.mark.parametrize("head", [NEWER, None])
def test_the_own_call_starts_where_nobody_has_a_more_urgent_one(head: tuple[int, float, float, str] | None) -> None:
    shard = busy()
    shard.heard("b", OLDER, 8.0)
    shard.heard("b", head, 9.0)
    assert started(ends(shard)) == ["a1"]


def test_a_head_that_was_told_too_long_ago_does_not_count() -> None:
    shard = busy()
    shard.heard("b", OLDER, 6.9)
    assert started(ends(shard)) == ["a1"]


def test_a_place_that_was_offered_counts_as_taken_until_the_next_report() -> None:
    shard = busy()
    shard.heard("b", OLDER, 9.0)
    assert offered(ends(shard))
    assert shard.arrive(Call("late", "m", 10.5), TEN, 10.5) == []
    assert shard.tick(10.9) == []
    assert started(shard.replicas_changed([state(11.0)], 11.0)) == ["a1"]


def test_who_is_offered_a_place_starts_there_what_waits() -> None:
    shard = busy("b")
    ends(shard, 10.0)  # b1 runs there now
    shard.arrive(Call("b2", "m", 11.0), TEN, 11.0)
    shard.replicas_changed([state(12.0, 1), state(12.0, 1, "r1")], 12.0)
    assert started(shard.offered(Offer(state(13.0, 0, "r1"), "b", "a"), 13.0)) == ["b2"]


def test_an_offer_goes_round_once_and_by_urgency() -> None:
    shards = {name: Shard(preset("late", engines=KNOWN), name) for name in "bcd"}
    for shard in shards.values():  # nothing waits there any more, though their peers think so
        shard.replicas_changed([state(0.0, 1)], 0.0)
        for name, head in (("a", 1.0), ("b", 0.5), ("c", 0.3), ("d", 3.0)):
            if name != shard.me:
                shard.heard(name, (1, head, head, name), 9.5)
    first = busy()
    first.heard("c", (1, 0.3, 0.3, "c"), 9.5)
    (offer,) = offered(ends(first))
    asked = []
    while True:
        asked.append(offer.router)
        if offer.router == "a":
            more = first.offered(offer, 10.0)
            assert started(more) == ["a1"]
            break
        (offer,) = offered(shards[offer.router].offered(offer, 10.0))
        assert offer.asked == tuple(asked)
    assert asked == ["c", "b", "a"]  # d's head is less urgent than that of a, who began


def test_a_call_that_is_due_stands_before_all_others_of_all_routers() -> None:
    shard = Shard(preset("late", engines=KNOWN, aging={"hold_s": (5.0, 5.0, 5.0)}), "a")
    shard.replicas_changed([state(0.0, 1)], 0.0)
    shard.arrive(Call("low", "m", 1.0, priority="low"), TEN, 1.0)
    shard.heard("b", OLDER, 6.5)
    assert shard.head(5.9) == (2, 1.0, 1.0, "low")
    assert shard.head(6.5) == (DUE, 6.0, 1.0, "low")
    assert started(shard.offered(Offer(state(6.5), "a", "b", OLDER), 6.5)) == ["low"]


def test_a_due_call_is_never_passed_over_for_one_that_is_not() -> None:
    shard = busy()
    shard.scheduler.mean_service_s = 0.25  # thirty of them are 7.5 s, and a1 came at 1
    shard.heard("b", OLDER, 9.0)
    assert started(ends(shard)) == ["a1"]


def test_orders_whose_keys_mean_nothing_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot compare keys of"):
        Shard(preset("late", order="vtc"), "a")


# ---- in a pool ----


class Deaf(Shard):
    """Does nothing with what it is offered, as if the message had been lost."""

    def offered(self, offer: Offer, now: float) -> list[Decision]:
        return []


def lone(lengths: list[float], every_s: float) -> Workload:
    flows = (SimWorkflow(f"w{i}", every_s * i, (SimCall("c", tokens),)) for i, tokens in enumerate(lengths))
    return Workload(tuple(flows))


def a_run(work: Workload, count: int, kind: type[Shard], replicas: int = 1, network_s: float = 0.0) -> CallTable:
    shards = [kind(preset("late", seed=i), f"router{i}") for i in range(count)]
    pool = cluster(ReplicaSpec("r", start_if_free=True), [1.0] * replicas)
    timing = Timing(network_s, report_period_s=1.0, answers_tell=True, heads_period_s=1.0)
    return simulate(work, pool, {"model": shards}, Oracle(), timing, router_of="workflow")


def test_two_routers_over_one_replica_start_calls_in_the_order_of_one_queue() -> None:
    """Where each keeps what its own calls leave, the first router's ten go before all of the second's."""
    work = lone([10.0] * 20, 0.5)
    alone = simulate(
        work, cluster(ReplicaSpec("r", start_if_free=True), [1.0]), {"model": [preset("late"), preset("late", 1)]},
        Oracle(), Timing(report_period_s=1.0, answers_tell=True), router_of="workflow",
    )  # fmt: skip
    assert alone.started_s[1] > 90
    together = a_run(work, 2, Shard)
    assert (np.diff(together.started_s) > 0).all()
    assert together.finished_s.max() == pytest.approx(200)  # no idle second


@pytest.mark.parametrize("kind", [Shard, Deaf])
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0.5, 2.0, 5.0, 30.0]), min_size=1, max_size=60),
    every_s=st.sampled_from([0.05, 0.5, 2.0]),
    routers=st.integers(2, 4),
    replicas=st.integers(1, 3),
    network_s=st.sampled_from([0.0, 0.01]),
)
def test_every_call_starts_and_no_place_stands_idle_for_long(
    kind: type[Shard], lengths: list[float], every_s: float, routers: int, replicas: int, network_s: float
) -> None:
    """Equal replicas: with calls waiting a free place is found with the next report, a second later at most; a router
    that was refused there a moment before asks again at the first tick after its second of refusal."""
    table = a_run(lone(lengths, every_s), routers, kind, replicas, network_s)
    assert table.ok.all()
    limit_s = 1.0 + 1.0 + 1.0 + 3 * network_s
    for place in range(replicas):
        mine = np.flatnonzero(table.replica == place)
        order = mine[np.argsort(table.started_s[mine])]
        for before, after in pairwise(order):
            free_s = table.finished_s[before]
            waits = (table.arrival_s <= free_s) & (table.started_s >= table.started_s[after])
            if waits.any():
                assert table.started_s[after] - free_s <= limit_s

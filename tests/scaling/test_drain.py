"""From a target to replicas: the cheapest to lose goes first, and nothing that holds a call is removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swarmx.scaling import PoolSample, ReplicaView
from swarmx.scaling.drain import plan


def pool(*views: ReplicaView) -> PoolSample:
    return PoolSample("m", 0.0, views)


def test_a_starting_replica_is_cancelled_before_a_ready_one_drains_and_the_least_busy_drains_first() -> None:
    views = (ReplicaView("full", in_flight=4), ReplicaView("idle"), ReplicaView("new", "starting", ready_in_s=50.0))
    assert plan(pool(*views), 2).cancel == ("new",)
    scale = plan(pool(*views), 1)
    assert (scale.cancel, scale.drain, scale.remove) == (("new",), ("idle",), ())


def test_a_draining_replica_is_taken_back_before_one_is_ordered() -> None:
    views = (ReplicaView("a"), ReplicaView("b", "draining", in_flight=2), ReplicaView("c", "draining"))
    scale = plan(pool(*views), 3)
    assert set(scale.resume) == {"b", "c"}
    assert not scale.add
    assert plan(pool(*views), 2).resume == ("b",)  # the one with calls; the empty one can go
    assert plan(pool(*views), 2).remove == ("c",)


def test_only_a_drained_and_empty_replica_is_removed() -> None:
    views = (ReplicaView("a"), ReplicaView("b", "draining", in_flight=1), ReplicaView("c", "draining"))
    assert plan(pool(*views), 1).remove == ("c",)


def test_of_two_kinds_the_one_with_less_capacity_for_its_price_goes() -> None:
    views = (ReplicaView("dear", device="h", slots=4, price=4.0), ReplicaView("cheap", device="l", slots=2, price=1.0))
    assert plan(pool(*views), 1).drain == ("dear",)


VIEWS = st.lists(
    st.tuples(st.sampled_from(["starting", "ready", "draining"]), st.integers(0, 3), st.sampled_from(["x", "y"])),
    max_size=12,
)


@given(VIEWS, st.integers(0, 15))
def test_the_plan_leads_to_the_target_and_touches_each_replica_once(
    made: list[tuple[str, int, str]], target: int
) -> None:
    views = [ReplicaView(f"r{i}", stage, n, device=d) for i, (stage, n, d) in enumerate(made)]  # type: ignore[arg-type]
    scale = plan(pool(*views), target)
    here = sum(v.stage != "draining" for v in views)
    assert here + sum(scale.add.values()) + len(scale.resume) - len(scale.drain) - len(scale.cancel) == target
    touched = [*scale.drain, *scale.resume, *scale.cancel, *scale.remove]
    assert len(set(touched)) == len(touched)
    by_id = {v.id: v for v in views}
    assert all(by_id[name].stage == "draining" and by_id[name].in_flight == 0 for name in scale.remove)
    assert all(by_id[name].stage == "ready" for name in scale.drain)

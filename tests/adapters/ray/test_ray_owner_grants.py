"""The queue owner's rules, without Ray: one queue for all handles, leases, reports."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.adapters.ray_serve.grants import GRACE_S, Grants
from swarmx.adapters.ray_serve.messages import Ask, Done, Foretold, Held, Report, Told
from swarmx.adapters.ray_serve.states import Ended
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction, Receipt, ReplicaState

STATES = (ReplicaState("fast", "m", slots=2, speed=2.0), ReplicaState("slow", "m", slots=1, speed=1.0))


@dataclass
class Time:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """An owner with what its handles have been granted and not ended."""

    time: Time = field(default_factory=Time)

    def __post_init__(self) -> None:
        self.grants = Grants(self.time)
        self.grants.told(Told("h0", (), STATES))
        self.bound: dict[str, tuple[str, str]] = {}  # call -> handle, replica

    def ask(self, name: str, handle: str = "h0", refused_by: str | None = None, workflow: str = "") -> None:
        call = Call(name, "m", self.time.now, workflow_id=workflow)
        self.grants.told(Told(handle, (Ask(call, None, f"k{name}", refused_by),)))

    def done(self, name: str, handle: str = "h0") -> None:
        self.grants.told(Told(handle, (Done(name),)))
        self.bound.pop(name, None)

    def fetch(self, *handles: str) -> dict[str, str]:
        """call -> replica, of what is new."""
        new: dict[str, str] = {}
        for handle in handles or tuple(self.grants.lines):
            for call, replica in self.grants.fetch(handle).grants:
                new[call] = replica
                self.bound[call] = (handle, replica)
        return new

    def on(self, replica: str) -> int:
        return sum(place == replica for _, place in self.bound.values())


def ended(key: str, tokens: int = 50, status: str = "ok") -> Ended:
    return Ended(key, "generate", status, tokens, 1.0, 1.0, 100.0, 10.0)


def test_calls_of_all_handles_wait_in_one_queue_and_start_in_its_order() -> None:
    world = World()
    for i in range(5):
        world.time.now += 1
        world.ask(f"c{i}", f"h{i % 2}")
    assert set(world.fetch()) == {"c0", "c1", "c2"}
    world.done("c0")
    assert set(world.fetch()) == {"c3"}


def test_a_dead_handles_grants_return_and_its_waiting_calls_leave() -> None:
    world = World()
    for name in ("a", "b", "c", "d"):
        world.ask(name, "dead")
    world.ask("mine", "h0")
    assert len(world.fetch("dead")) == 3
    assert not world.fetch("h0")
    for _ in range(6):
        world.time.now += 1
        world.grants.told(Told("h0"))
        world.grants.tick()
    assert set(world.fetch("h0")) == {"mine"}
    assert list(world.grants.places) == ["mine"]
    assert world.grants.counts["returned"] == 4


def test_a_handle_that_is_heard_of_keeps_what_it_has() -> None:
    world = World()
    for name in ("a", "b", "c", "d"):
        world.ask(name)
    for _ in range(20):
        world.time.now += 3
        world.grants.told(Told("h0"))
        world.grants.tick()
    assert len(world.grants.places) == 4


def test_a_forgotten_handle_is_told_so_once() -> None:
    world = World()
    assert [world.grants.fetch("new").forgotten for _ in range(2)] == [True, False]


def test_a_call_ends_once_by_report_or_by_its_handle() -> None:
    world = World()
    for name in ("a", "b", "c", "d", "e"):
        world.ask(name)
    replica = world.fetch()["a"]
    world.grants.report(Report(replica, {"running": 1, "at_s": world.time.now}, (), (ended("ka"),)))
    assert len(world.fetch()) == 1
    world.done("a")
    world.grants.told(Told("h0", (Done("a"),)))
    assert not world.fetch()
    assert world.grants.counts["ended"] == 1


def test_a_reporting_replicas_word_on_length_is_waited_for_only_shortly() -> None:
    world = World()
    for name in ("a", "b", "c", "d"):
        world.ask(name)
    replica = world.fetch()["a"]
    world.grants.report(Report(replica, {"running": 1, "at_s": world.time.now}))
    world.done("a")
    assert not world.fetch()
    world.time.now += GRACE_S
    world.grants.tick()
    assert set(world.fetch()) == {"d"}


def test_a_refused_call_goes_elsewhere() -> None:
    world = World()
    world.ask("a")
    first = world.fetch()["a"]
    world.ask("a", refused_by=first)
    assert world.fetch()["a"] not in ("", first)
    assert world.grants.counts["refused"] == 1


def test_a_lost_grant_is_given_again_and_not_twice() -> None:
    world = World()
    world.ask("a")
    first = world.fetch()
    world.ask("a")
    assert world.fetch() == first
    assert len(world.grants.scheduler.cluster.flights) == 1


def test_calls_on_a_replica_that_is_gone_can_be_asked_for_again() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.ask(name)
    lost = [name for name, replica in world.fetch().items() if replica == "fast"]
    world.grants.told(Told("h0", (), STATES[1:]))
    assert not set(lost) & set(world.grants.places)
    world.grants.told(Told("h0", (), (*STATES[1:], ReplicaState("new", "m", slots=2))))
    for name in lost:
        world.ask(name, refused_by="fast")
    assert set(world.fetch().values()) == {"new"}


def test_calls_bound_elsewhere_count_where_they_run() -> None:
    world = World()
    for name in ("a", "b"):
        held = Held(Call(name, "m", world.time.now), None, f"k{name}", "fast")
        world.grants.told(Told("h1", (held,)))
    world.ask("c")
    assert world.fetch("h0") == {"c": "slow"}
    world.grants.told(Told("h1", (Done("a"), Done("b"))))
    world.ask("d")
    assert world.fetch("h0") == {"d": "fast"}


def test_after_being_away_a_handle_says_all_that_it_has() -> None:
    world = World()
    for name in ("a", "b", "c", "d"):
        world.ask(name)
    world.fetch()
    world.grants.told(Told("h0", (), None, frozenset({"d"})))
    assert set(world.grants.places) == {"d"}
    assert set(world.fetch()) == {"d"}


def test_a_late_prediction_reaches_a_call_that_is_held_and_no_other() -> None:
    world = World()
    for name in ("a", "b", "c", "held"):
        world.ask(name)
    world.fetch()
    long = Prediction(QuantileGrid.point(900.0), "oracle")
    world.grants.told(Told("h0", tuple(Foretold(name, long) for name in ("a", "held", "unheard"))))
    world.grants.told(Told("h1", (Foretold("held", Prediction(QuantileGrid.point(1.0), "oracle")),)))
    trust = world.grants.scheduler.intake.trust
    assert {name: float(asked.said.tokens.mean()) for name, asked in trust.open().items()} == {"held": 900.0}
    assert {name for name, place in world.grants.places.items() if place.replica} == {"a", "b", "c"}


def test_asking_again_takes_back_that_a_call_was_over() -> None:
    world = World()
    world.ask("a")
    replica = world.fetch()["a"]
    world.grants.report(Report(replica))
    world.done("a")
    world.ask("a", refused_by=replica)
    world.time.now += 10 * GRACE_S
    world.grants.tick()
    assert "a" in world.grants.places


def test_receipts_explain_grants_where_somebody_takes_them() -> None:
    receipts: list[Receipt] = []
    grants = Grants(Time(), on_receipt=receipts.append)
    grants.told(Told("h0", (Ask(Call("a", "m", 0.0), None, "ka"),), STATES))
    assert [(r.call_id, r.action, r.replica) for r in receipts] == [("a", "start", grants.places["a"].replica)]


def test_two_handles_with_one_id_do_not_share_a_call() -> None:
    world = World()
    world.ask("a", "h0")
    world.ask("a", "h1")
    assert world.grants.fetch("h1").grants == (("a", ""),)
    world.done("a", "h1")
    assert "a" in world.grants.places


def test_a_workflow_is_as_old_as_its_first_call_at_any_handle() -> None:
    world = World()
    world.ask("old", "h1", workflow="w")
    world.time.now += 100
    for name in ("b", "c", "d", "e"):
        world.ask(name, workflow=name)
    world.ask("young", "h0", workflow="w")
    assert "young" not in world.fetch()
    world.done("b")
    assert set(world.fetch()) == {"young"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aadddrrtg"), st.integers(0, 7), st.integers(0, 2)), max_size=60))
def test_no_replica_is_granted_more_calls_than_it_has_slots(steps: list[tuple[str, int, int]]) -> None:
    world, asked = World(), 0
    for what, which, handle in steps:
        world.time.now += 0.05
        names = sorted(world.grants.places)
        name = names[which % len(names)] if names else ""
        place = world.grants.places.get(name)
        if what == "a":
            world.ask(f"c{asked}", f"h{handle}")
            asked += 1
        elif what == "d" and place is not None:
            world.done(name, place.handle)
        elif what == "r" and place is not None and place.replica:
            world.bound.pop(name, None)
            world.ask(name, place.handle, refused_by=place.replica)
        elif what == "g" and place is not None and place.replica:
            world.bound.pop(name, None)
            world.grants.report(Report(place.replica, {}, (), (ended(place.key),)))
        world.grants.tick()
        world.fetch()
        assert all(world.on(s.id) <= s.slots for s in STATES)
        held = {name: p for name, p in world.grants.places.items() if p.replica}
        assert {name for name, p in held.items() if p.over_s is None} == set(world.bound) & set(held)
        assert set(held) == set(world.grants.scheduler.cluster.flights)
    for name, place in sorted(world.grants.places.items()):
        world.done(name, place.handle)
    world.time.now += 1
    world.grants.tick()
    assert not world.grants.places
    assert not world.grants._keys
    assert not world.grants.scheduler.cluster.flights


@pytest.mark.parametrize("name", ["late", "central_fcfs"])
def test_any_preset_that_holds_calls_can_own_the_queue(name: str) -> None:
    grants = Grants(Time(), name)
    grants.told(Told("h", tuple(Ask(Call(f"c{i}", "m", 0.0), None, "k") for i in range(5)), STATES))
    assert len(grants.fetch("h").grants) == 3

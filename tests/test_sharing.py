"""Delay behind ideal fair sharing: nobody is behind under equal service, and a starved tenant is behind by its wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.ordering.fair_share import FairShare
from swarmx.presets import preset
from swarmx.sharing import Sharing
from swarmx.types import Call, CallRecord, ReplicaState, Start


def test_a_tenant_that_gets_nothing_is_behind_by_all_the_time_that_it_waits() -> None:
    sharing = Sharing()
    sharing.entered("a", "big", 0.0)
    sharing.started("a", 0.0, 0.0)
    sharing.entered("b", "small", 0.0)
    assert sharing.behind_s("small", 10.0) == 0.0  # nobody has got anything
    sharing.progressed("a", 100.0)
    assert sharing.behind_s("small", 10.0) == pytest.approx(10.0)
    sharing.started("b", 0.0, 20.0)
    assert sharing.worst_s == {"big": 0.0, "small": pytest.approx(20.0)}


def test_a_tenant_with_half_of_what_it_is_owed_is_behind_by_half_of_the_time() -> None:
    sharing = Sharing({"gold": 3.0})
    for name, tenant in (("g0", "gold"), ("g1", "gold"), ("s", "silver")):
        sharing.entered(name, tenant, 0.0)
    sharing.started("g0", 0.0, 0.0)
    sharing.started("s", 0.0, 0.0)
    sharing.progressed("g0", 30.0)
    sharing.progressed("s", 50.0)
    assert sharing.behind_s("gold", 8.0) == pytest.approx(8.0 * (1 - 30 / 60))
    assert sharing.behind_s("silver", 8.0) == 0.0  # it has nothing waiting


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "start", "stop"])), max_size=60))
def test_nothing_is_left_of_calls_that_are_gone(steps: list[tuple[str, str]]) -> None:
    sharing, waiting, running = Sharing(), [], []
    for i, (tenant, step) in enumerate(steps):
        if step == "enter":
            sharing.entered(f"{i}", tenant, float(i))
            waiting.append(f"{i}")
        elif step == "start" and waiting:
            running.append(waiting.pop(0))
            sharing.started(running[-1], 5.0, float(i))
        elif step == "stop" and running:
            name = running.pop(0)
            sharing.stopped(name, 7.0)
            sharing.over(name, waited=False)
    for name in waiting:
        sharing.over(name, waited=True)
    for name in running:
        sharing.stopped(name, 1.0)
        sharing.over(name, waited=False)
    assert not (sharing._tenant or sharing._inside or sharing._waiting or sharing._seen)
    assert sharing._weight == 0.0 and all(delay >= 0 for delay in sharing.worst_s.values())


def test_the_scheduler_keeps_it_with_the_weights_of_its_order() -> None:
    scheduler = preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order=FairShare({"gold": 2.0}))
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    assert isinstance(scheduler.arrive(Call("a", "m", 0.0, tenant="gold"), None, 0.0)[0], Start)
    scheduler.arrive(Call("b", "m", 0.0, tenant="other"), None, 0.0)
    scheduler.progress("a", 9.0, 9.0)
    scheduler.finished(CallRecord("a", "m", 0.0, "ok", output_tokens=10), 10.0)
    assert scheduler.observers.sharing.weights == {"gold": 2.0}
    assert scheduler.observers.sharing.worst_s["other"] == pytest.approx(10.0)

"""Accounts of tenants add up to the run, and say who was behind."""

from __future__ import annotations

import pytest

from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.sim import CallTable, Cluster, ReplicaSpec, SimCall, SimWorkflow, Workload, simulate
from swarmx.sim.accounts import MOST_TENANTS, accounts_of, figures_of


def run(tenants: list[str], order: str = "fcfs") -> CallTable:
    flows = tuple(SimWorkflow(f"w{i}", 0.0, (SimCall("c", 10.0, prompt_tokens=5),), t) for i, t in enumerate(tenants))
    scheduler = preset("central_fcfs", 0, {"default": EngineConstants(1.0)}, order=order)
    return simulate(Workload(flows), Cluster((ReplicaSpec("r"),)), scheduler)


def test_accounts_add_up() -> None:
    found = accounts_of(run(["a", "a", "a", "b"]))
    assert [(a.tenant, a.calls, a.failed, a.tokens) for a in found] == [("a", 3, 0, 45.0), ("b", 1, 0, 15.0)]
    assert [a.share for a in found] == pytest.approx([1.5, 0.5])
    assert found[0].mean_wait_s == pytest.approx(10.0) and found[1].worst_wait_s == pytest.approx(30.0)
    assert found[1].mean_turnaround_s == pytest.approx(40.0)
    assert [a.agents for a in found] == [3, 1]
    assert (found[0].mean_agent_s, found[0].worst_agent_s) == pytest.approx((20.0, 30.0))


def test_weights_change_what_is_fair() -> None:
    found = accounts_of(run(["a", "a", "a", "b"]), {"a": 3.0})
    assert [a.share for a in found] == pytest.approx([1.0, 1.0])
    assert figures_of(found, {"a": 3.0})["tenants_jain"] == pytest.approx(1.0)


def test_whoever_ends_after_ideal_sharing_is_behind() -> None:
    found = accounts_of(run(["a", "b"]))  # ideally both end at 20 s
    assert [a.worst_delay_s for a in found] == pytest.approx([0.0, 0.0])
    behind = {a.tenant: a.worst_delay_s for a in accounts_of(run(["a"] * 5 + ["b"]))}
    assert behind["b"] == pytest.approx(0.0) and behind["a"] == pytest.approx(0.0)  # six equal ones end together


def test_one_tenant_has_no_accounts_and_many_are_summed_up() -> None:
    assert accounts_of(run(["a", "a"])) == [] and figures_of([]) == {}
    many = figures_of(accounts_of(run([f"t{i}" for i in range(MOST_TENANTS + 1)])))
    assert set(many) == {"tenants_jain", "tenants_worst_delay_s"}
    few = figures_of(accounts_of(run(["a", "b"])))
    assert few["tenant/a/calls"] == 1.0 and few["tenants_jain"] == pytest.approx(1.0)

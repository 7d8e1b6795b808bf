"""No tenant is shut out by older work of others, however much that is."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.ordering import Aging
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start

LONGEST, SERVICES = 9, 3.0


def starts_of(policy: str, order: str, giant: int, small: list[tuple[int, int]], replicas: int, seed: int):  # type: ignore[no-untyped-def]
    """Play a giant of so many calls and small tenants' calls (tenant, arrival).

    Returns [(tenant, arrival, start)] and the largest mean service time that the scheduler saw.

    Every call is known to take 1 to LONGEST seconds on any replica.
    """
    rng = np.random.default_rng(seed)
    aging = Aging(overtakes=2**62, hold_services=1e9, tenant_services=SERVICES)
    scheduler = preset(policy, 0, {"d": EngineConstants(1.0)}, order=order, aging=aging, tier="neural")
    scheduler.replicas_changed([ReplicaState(f"r{i}", "m", "d") for i in range(replicas)], 0.0)
    calls = [Call(f"g{i:04d}", "m", 0.0, workflow_id="g", tenant="giant") for i in range(giant)]
    calls += [Call(f"s{i:04d}", "m", float(at), workflow_id=f"s{i}", tenant=f"t{t}") for i, (t, at) in enumerate(small)]
    length = {c.id: int(rng.integers(1, LONGEST + 1)) for c in calls}
    known = {c.id: c for c in calls}
    events: list[tuple[float, int, str, str]] = []
    for call in calls:
        heappush(events, (call.arrival_s, 0, "arrive", call.id))
    found, means = [], [0.0]
    while events:
        now, _, kind, name = heappop(events)
        if kind == "arrive":
            decisions = scheduler.arrive(
                known[name], Prediction(QuantileGrid.point(float(length[name])), "oracle"), now
            )
        else:
            record = CallRecord(name, "m", 0.0, "ok", output_tokens=length[name])
            decisions = scheduler.finished(record, now)
        means.append(scheduler.mean_service_s)
        for decision in decisions:
            assert isinstance(decision, Start)
            found.append((known[decision.call_id].tenant, known[decision.call_id].arrival_s, now))
            heappush(events, (now + length[decision.call_id], 1, "end", decision.call_id))
    assert len(found) == len(calls)
    return found, max(means)


@pytest.mark.parametrize("order", ["oldest_workflow", "fcfs", "fair_share", "sjf"])
@pytest.mark.parametrize("policy", ["central_fcfs", "late"])
@settings(max_examples=12, deadline=None)
@given(
    giant=st.integers(20, 150),
    small=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), min_size=1, max_size=12),
    replicas=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_giant_of_any_size_blocks_no_tenant_for_longer_than_the_bound(
    policy: str, order: str, giant: int, small: list[tuple[int, int]], replicas: int, seed: int
) -> None:
    found, mean_s = starts_of(policy, order, giant, small, replicas, seed)
    tenants = {tenant for tenant, _, _ in found}
    # a start of each other tenant in the same state, each after one call has ended at the latest; and one until the
    # first end after it is overdue, which is when the scheduler looks
    bound = SERVICES * mean_s + (len(tenants) + 1) * LONGEST
    for tenant in tenants - {"giant"}:
        arrivals = sorted(at for name, at, _ in found if name == tenant)
        times = sorted(start for name, _, start in found if name == tenant)
        for i, start in enumerate(times):  # the i-th start ends a wait that began with the i-th arrival or start before
            waits_since = max(arrivals[i], times[i - 1] if i else 0.0)
            assert start - waits_since <= bound + 1e-9


def test_without_it_a_giant_shuts_everybody_out_until_it_has_ended() -> None:
    aging = Aging(overtakes=2**62, hold_services=1e9, tenant_services=float("inf"))
    scheduler = preset("central_fcfs", 0, {"d": EngineConstants(1.0)}, order="oldest_workflow", aging=aging)
    scheduler.replicas_changed([ReplicaState("r", "m", "d")], 0.0)
    started = []
    for i in range(50):
        started += scheduler.arrive(Call(f"g{i:02d}", "m", 0.0, workflow_id="g", tenant="giant"), None, 0.0)
    scheduler.arrive(Call("small", "m", 1.0, tenant="other"), None, 1.0)
    for i in range(50):
        record = CallRecord(f"g{i:02d}", "m", 0.0, "ok", output_tokens=10)
        started += scheduler.finished(record, 10.0 * (i + 1))
    assert [d.call_id for d in started][-1] == "small"

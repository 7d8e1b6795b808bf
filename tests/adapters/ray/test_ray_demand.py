"""What live workflows still ask for: from a handle's calls through pages to a policy's decision."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_ray_router_desk import STATES, Counts, Request, metadata

from swarmx.adapters.live_work import DemandSettings
from swarmx.adapters.ray_serve import demand_pages
from swarmx.adapters.ray_serve.deciding import decider
from swarmx.adapters.ray_serve.demand_pages import STALE_S, Foreseen, Pages
from swarmx.adapters.ray_serve.desk import Desk
from swarmx.adapters.ray_serve.live import SharedDemand, shared_demand
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.errors import BadInput
from swarmx.logs.table import write_log
from swarmx.scaler import PoolSettings
from swarmx.scaling.bounded import Bounds
from swarmx.scaling.samples import PoolSample, ReplicaView
from swarmx.types import CallRecord

CODES, CODE_S = 3, 10.0


def write_agents(path: Path, runs: int = 20) -> Path:
    """A plan of 4 s, then three pieces of code of 10 s each, at once."""
    records = []
    for i in range(runs):
        at, flow = 100.0 * i, f"w{i}"
        times = {"dispatched_s": at, "finished_s": at + 4.0}
        records.append(CallRecord(f"p{i}", "plan", at, "ok", flow, type="plan", output_tokens=40, **times))  # type: ignore[arg-type]
        for j in range(CODES):
            times = {"dispatched_s": at + 4.0, "finished_s": at + 4.0 + CODE_S}
            records.append(
                CallRecord(f"c{i}-{j}", "code", at + 4.0, "ok", flow, f"p{i}", type="code", output_tokens=99, **times)  # type: ignore[arg-type]
            )
    write_log(records, path, {"source": "test"})
    return path


class Handle:
    """A desk of one deployment whose calls are entered in a book of demand."""

    def __init__(self, deployment: str, demand: SharedDemand) -> None:
        self.demand, self.deployment = demand, deployment
        self.desk = Desk(deployment, "least_outstanding_per_speed", {}, lambda: 1000.0, Counts(), watchers=(demand,))  # type: ignore[arg-type]
        self.desk.replicas_changed((state, {}) for state in STATES)

    def calls(self, workflow: str) -> Ride:
        request = Request(metadata=metadata(f"i-{workflow}", request_id=workflow, call_method=self.deployment))
        ride = self.desk.enter(request, {})
        self.desk.tell("entered", ride, 1000.0)
        self.desk.bind(ride)
        self.desk.routed(request, ride.replica)
        return ride


def shared(log: Path, deployment: str, app: str) -> SharedDemand:
    return shared_demand(app, deployment, DemandSettings(log=log, horizon_s=30.0), None, lambda: 1000.0)


def foreseen(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> Foreseen:
    """A policy's side that reads these pages instead of an actor's."""
    made = Foreseen("app")
    monkeypatch.setattr(made, "_latest", lambda: pages.latest("app"))
    made.demand("code", 0.0)
    assert made._looking is not None
    made._looking.result(10)
    return made


@pytest.mark.asyncio
async def test_a_live_plan_foretells_code_that_nobody_has_called_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, pages = write_agents(tmp_path / "log.parquet"), Pages()
    plan = Handle("plan", shared(log, "plan", str(tmp_path)))
    shared(log, "code", str(tmp_path))
    plan.calls("w1")
    page = {"routes": sorted(plan.demand.routes), "demand": plan.demand.demand.page(1000.0)}
    assert page["routes"] == ["code", "plan"]
    pages.put("app", plan.demand.demand.book, page)
    demand = foreseen(pages, monkeypatch).demand("code", 1.0)
    assert demand is not None
    assert demand.mean["backlog"].sum() == 0
    assert demand.mean["downstream"].sum() == pytest.approx(CODES * CODE_S, rel=0.1)


@pytest.mark.asyncio
async def test_handles_of_one_process_share_a_book_and_a_workflow_begins_once(tmp_path: Path) -> None:
    log = write_agents(tmp_path / "log.parquet")
    plan, code = (Handle(name, shared(log, name, str(tmp_path))) for name in ("plan", "code"))
    assert plan.demand is code.demand
    plan.calls("w1")
    ride = code.calls("w1")
    assert len(code.demand.demand.live) == 2
    assert len(code.demand.demand.live._begun) == 1
    code.desk.end(ride, "completed")
    assert len(code.demand.demand.live) == 1


@pytest.mark.asyncio
async def test_where_no_router_publishes_the_deployment_counts_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, pages = write_agents(tmp_path / "log.parquet"), Pages()
    demand = shared(log, "plan", str(tmp_path))
    assert foreseen(pages, monkeypatch).demand("plan", 1.0) is None
    pages.put("app", "p", {"routes": ["plan"], "demand": demand.demand.page(1000.0)})
    assert foreseen(pages, monkeypatch).demand("code", 1.0) is None
    assert foreseen(pages, monkeypatch).demand("plan", 1.0) is not None


def test_a_process_that_is_silent_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pages = [0.0], Pages()
    monkeypatch.setattr(demand_pages.time, "monotonic", lambda: now[0])
    pages.put("app", "p", {"routes": []})
    pages.put("other", "q", {"routes": []})
    assert list(pages.latest("app")) == ["p"]
    now[0] = STALE_S + 1
    assert pages.latest("app") == {}


def test_a_log_without_these_models_is_refused(tmp_path: Path) -> None:
    log = write_agents(tmp_path / "log.parquet")
    with pytest.raises(BadInput, match="plan"):
        shared(log, "unheard", str(tmp_path))


@pytest.mark.asyncio
async def test_the_scaler_orders_replicas_for_code_while_plans_still_run(tmp_path: Path) -> None:
    log = write_agents(tmp_path / "log.parquet")
    plan = Handle("plan", shared(log, "plan", str(tmp_path)))
    shared(log, "code", str(tmp_path))
    for i in range(4):
        plan.calls(f"w{i}")
        await asyncio.sleep(0)
    live = plan.demand.demand.live.demands(1000.0)
    wants: dict[str, Any] = {}
    for name, demand in (("live", live["code"]), ("counts", None)):
        made = decider(cold_s=8.0)
        made.scaler.settings = {"code": PoolSettings(Bounds(minimum=1, maximum=50))}
        sample = PoolSample(
            "code", 1000.0, (ReplicaView("r", slots=1),), 0.0, 0.0, 0.0, 0.0, CODE_S, demand=demand, cold_s=8.0
        )  # fmt: skip
        wants[name] = max((s.target for s in made.scaler.step([sample])), default=1)
    assert wants["counts"] == 1
    assert wants["live"] >= 4 * CODES / 2

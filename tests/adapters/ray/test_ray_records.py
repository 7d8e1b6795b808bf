"""In a real Ray Serve: records and receipts on disk, predictions that are late, and live demand on its way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from test_ray_demand import write_agents
from test_ray_owner import MODEL
from test_ray_router import App
from typer.testing import CliRunner

from swarmx import client
from swarmx.adapters.gateway.receipts import find_receipt
from swarmx.logs.many import read_logs
from swarmx.types import CallRecord, Prediction

WORKFLOW = "run-records"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def recorded(ray_serve: Any, logs: Path) -> Iterator[App]:
    log = write_agents(logs.parent / "agents.parquet")
    known = log.with_name("engine.parquet")
    _renamed(log, known)
    app = App(
        ray_serve, "recorded", "late", MODEL, answer_s=10.0, demand={"log": str(known), "horizon_s": 30.0},
        log={"directory": str(logs), "prompt": "keep", "rotate_s": 1.0},
    )  # fmt: skip
    app.run(app.together(1))
    wait_until(lambda: app.router._link.is_up)
    yield app
    app.close()


def _renamed(log: Path, out: Path) -> None:
    """The agents' log with the deployment's name in the place of `plan`."""
    from dataclasses import replace

    from swarmx.logs.table import read_log, write_log

    names = {"plan": "Engine", "code": "code"}
    write_log([replace(r, model=names[r.model]) for r in read_log(log)], out, {"source": "test"})


def records_of(logs: Path, workflow: str) -> list[CallRecord]:
    if not list(logs.rglob("*.parquet")):
        return []
    return [r for r in read_logs(logs) if r.workflow_id == workflow]


def test_each_call_leaves_a_record_and_a_receipt_that_can_be_explained(recorded: App, logs: Path) -> None:
    from swarmx.cli import app as cli

    async def work() -> None:
        with client.workflow(WORKFLOW):
            calls = [recorded.engine.remote("word " * (3 + i), swarmx_type="step") for i in range(12)]
            await asyncio.gather(*calls)
            with pytest.raises(Exception, match="boom"):
                await recorded.engine.fail.remote("boom")
            assert len([1 async for _ in recorded.engine.options(stream=True).stream.remote("a b c d e")]) == 5

    recorded.run(work())
    wait_until(lambda: len(records_of(logs, WORKFLOW)) == 14)
    found = records_of(logs, WORKFLOW)
    whole = [r for r in found if r.type == "step"]
    assert sorted(r.output_tokens for r in whole) == list(range(3, 15))
    assert {(r.status, r.policy, r.model) for r in whole} == {("ok", "late", "Engine")}
    for r in whole:
        assert r.prompt is not None and len(r.prompt.split()) == r.output_tokens
        assert r.arrival_s <= (r.dispatched_s or 0) < (r.finished_s or 0)
        assert r.replica and r.predicted_tokens is not None and r.running_at_dispatch is not None
    (failed,) = (r for r in found if r.type == "fail")
    assert failed.status == "error"
    (streamed,) = (r for r in found if r.type == "stream")
    assert streamed.first_token_s is not None and streamed.first_token_s < (streamed.finished_s or 0)
    one = whole[-1]
    wait_until(lambda: bool(find_receipt(logs, one.call_id)))
    assert find_receipt(logs, one.call_id)[-1]["replica"] == one.replica
    said = CliRunner().invoke(cli, ["explain", one.call_id, "--log", str(logs)])
    assert said.exit_code == 0
    assert str(one.replica) in said.output


class Asleep:
    """A predictor whose network hangs until it is woken, and that knows lengths by type at once."""

    version = "asleep"

    def __init__(self, awake: Any) -> None:
        self.awake, self.woken = awake, threading.Event()

    def predict(self, calls: Any) -> list[Prediction]:
        self.woken.wait(60)
        found: list[Prediction] = self.awake.predict(calls)
        return found

    def fallback_for(self, calls: Any) -> list[Prediction]:
        found: list[Prediction] = self.awake.fallback_for(calls)
        return found


def test_calls_are_answered_while_the_predictor_hangs(recorded: App) -> None:
    forecaster = recorded.router._forecaster
    awake, budget_s, before = forecaster.predictor, forecaster.budget_s, recorded.router.counts
    asleep, forecaster.budget_s = Asleep(awake), 0.02
    forecaster.take(asleep)
    try:
        assert sum(recorded.run(recorded.together(4, "word word")).values()) == 4
        assert recorded.router.counts["late_predictions"] - before.get("late_predictions", 0) == 4
    finally:
        asleep.woken.set()
        forecaster.budget_s = budget_s
        forecaster.take(awake)


async def _ask(app: App, prompt: str) -> Any:
    return await app.engine.remote(prompt)


def test_live_demand_reaches_a_policy_by_way_of_the_actor(recorded: App) -> None:
    from swarmx.adapters.ray_serve.demand_pages import Foreseen

    foreseen = Foreseen("recorded")

    def downstream() -> float:
        demand = foreseen.demand("Engine", time.time())
        return 0.0 if demand is None else float(sum(part.sum() for part in demand.mean.values()))

    async def work() -> float:
        call = asyncio.create_task(_ask(recorded, "word " * 150))
        most = 0.0
        while not call.done():
            most = max(most, downstream())
            await asyncio.sleep(0.1)
        return most

    assert recorded.run(work()) > 0

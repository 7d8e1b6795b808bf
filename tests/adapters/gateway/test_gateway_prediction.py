"""What a predictor may cost the calls that wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from gateway_harness import SPEC, Running, running
from patience import until

from swarmx.adapters.predicting import Forecaster
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction

pytestmark = pytest.mark.asyncio
BUDGET_S = 0.06


@dataclass
class Sleeping:
    """A network that sleeps over each call; a call's type is known at once."""

    call_s: float
    awake: int = 0  # times it has answered

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        time.sleep(self.call_s * len(calls))
        self.awake += 1
        return [Prediction(QuantileGrid.point(10.0), "neural", model_version="v1") for _ in calls]

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        return [Prediction(QuantileGrid.point(20.0), "per_type", model_version="v1") for _ in calls]


def predicts(run: Running, predictor: Sleeping, budget_s: float = BUDGET_S) -> Forecaster:
    state = run.gateway.state
    state.predictor = Forecaster(predictor, budget_s, state.metrics.predictions)
    return state.predictor


async def tiers(run: Running, calls: int) -> list[str]:
    """Who said what is expected of each of so many calls that come at once."""
    answers = await asyncio.gather(*(run.chat(f"call {i}") for i in range(calls)))
    assert [status for status, _, _ in answers] == [200] * calls
    receipts = [run.gateway.state.receipts.get(headers["x-swarmx-decision"]) for _, _, headers in answers]
    return [receipt.tier for receipt in receipts if receipt is not None]


def counted(run: Running, name: str) -> float:
    line = next(x for x in run.gateway.state.metrics.text().decode().splitlines() if x.startswith(name + " "))
    return float(line.split()[1])


async def test_a_predictor_that_sleeps_holds_no_call_beyond_its_budget() -> None:
    async with running(1) as run:
        sleeping = Sleeping(10.0)
        predicts(run, sleeping)
        assert await tiers(run, 3) == ["per_type"] * 3
        assert not sleeping.awake  # the network has not answered yet
        waits = [row["wait_s"] for row in run.gateway.state.latest()]
        assert min(waits) > BUDGET_S - 0.02
        assert counted(run, "swarmx_predictions_late_total") == 3


async def test_of_many_calls_at_once_those_that_fit_are_read_by_the_network() -> None:
    async with running(1, spec=replace(SPEC, slots=16)) as run:
        thread = predicts(run, Sleeping(0.4), budget_s=1.8)  # four fit
        assert thread.timed is not None
        thread.timed.call_s = 0.4
        await tiers(run, 16)
        by_network, by_type = (
            counted(run, f'swarmx_prediction_calls_total{{pool="mock",source="{source}"}}')
            for source in ("neural", "per_type")
        )
        assert by_network + by_type == 16 and by_network >= 1
        assert by_type >= counted(run, "swarmx_predictions_by_type_total") > 0


async def test_a_call_hears_of_a_late_prediction_while_it_waits() -> None:
    async with running(1) as run:
        predicts(run, Sleeping(0.15))
        for replica in run.gateway.state.pools["mock"].replicas.values():
            run.gateway.state.pools["mock"].drain(replica, leave=False)
        call = asyncio.create_task(run.chat())
        tickets = run.gateway.state.pools["mock"].tickets
        await until(lambda: [t.prediction.source for t in tickets.values() if t.prediction] == ["neural"])
        for replica in run.gateway.state.pools["mock"].replicas.values():
            run.gateway.state.pools["mock"].undrain(replica)
        status, _, headers = await call
        receipt = run.gateway.state.receipts.get(headers["x-swarmx-decision"])
        assert status == 200 and receipt is not None and receipt.tier == "neural"

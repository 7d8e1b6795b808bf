"""Predictions beside the event loop: batches, budgets, late ones, models that change, a thread that may hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from patience import PATIENCE_S, until

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.predicting import Forecaster, Told
from swarmx.errors import BadInput
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction, ReplicaState


class Slow:
    """A predictor whose network takes its time; by type it says 99 at once."""

    version = "1"

    def __init__(self, seconds: float, fails: bool = False) -> None:
        self.seconds, self.fails, self.batches = seconds, fails, []  # type: ignore[var-annotated]

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        time.sleep(self.seconds)
        self.batches.append(len(calls))
        if self.fails:
            raise RuntimeError("broken model")
        return [Prediction(QuantileGrid.point(float(len(call.id)))) for call in calls]

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        return [Prediction(QuantileGrid.point(99.0), "per_type") for _ in calls]


def test_predictions_are_made_in_batches_beside_the_loop() -> None:
    async def run() -> None:
        predictor = Slow(0.05)
        forecast = Forecaster(predictor, 2.0, Told.counted(Counters().add))
        found = await asyncio.gather(*(forecast(Call("x" * n, "m", 0.0)) for n in range(1, 7)))
        assert [float(p.tokens.values[0]) for p in found if p] == [1, 2, 3, 4, 5, 6]
        assert len(predictor.batches) <= 2

    asyncio.run(run())


@pytest.mark.parametrize("predictor", [Slow(5.0), Slow(0.0, fails=True)], ids=["late", "broken"])
def test_a_call_whose_prediction_does_not_come_has_that_of_its_type(predictor: Slow) -> None:
    async def run() -> None:
        counters = Counters()
        said = await Forecaster(predictor, 0.05, Told.counted(counters.add))(Call("1", "m", 0.0))
        assert said is not None and (said.source, float(said.tokens.values[0])) == ("per_type", 99.0)
        assert predictor.fails or not predictor.batches  # and not when the network is through
        assert counters.total("late_predictions") == 1

    asyncio.run(run())


def test_a_crowd_is_read_as_far_as_the_budget_goes() -> None:
    """Calls that come together: the network reads some, the others go on by type, all within their time."""

    async def run() -> None:
        class Steady(Slow):
            def predict(self, calls: Sequence[Call]) -> list[Prediction]:
                time.sleep(0.08 * len(calls))
                return super().predict(calls)

        counters = Counters()
        forecast = Forecaster(Steady(0.0), 1.2, Told.counted(counters.add))
        for _ in range(8):  # it learns what a call costs
            await forecast(Call("x", "m", 0.0))
        found = await asyncio.gather(*(forecast(Call("x", "m", 0.0)) for _ in range(60)))
        sources = [said.source for said in found if said is not None]
        assert len(sources) == 60 and 0 < sources.count("neural") < 60
        assert counters.total("late_predictions") == sources.count("per_type")

    asyncio.run(run())


def test_a_held_call_hears_of_a_prediction_that_came_late() -> None:
    async def run() -> None:
        forecast = Forecaster(Slow(0.15), 0.02, Told.counted(Counters().add))
        pool = Pool(Lanes("late"), asyncio.get_running_loop().time, PickLimits(), Counters(), forecast)
        pool.set_states([ReplicaState("a:1", "m")])
        first = await pool.pick(Call("a", "m", pool.clock()), None, 9.0)
        assert first.prediction is not None and first.prediction.source == "per_type"
        held = asyncio.create_task(pool.pick(Call("bb", "m", pool.clock()), None, PATIENCE_S))

        def said_of(name: str) -> str | None:
            said = pool.rides[name].prediction
            return said.source if said else None

        await until(lambda: "bb" in pool.rides and said_of("bb") == "neural")
        assert sum(pool.lanes.owner.intake.tiers.values()) == 3  # the scheduler was told of two calls, of one twice
        pool.end(first, "ok")
        pool.end(await held, "ok")

    asyncio.run(run())


def test_a_new_model_takes_over_while_running_and_a_bad_one_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "manifest.json").write_text("1")
        forecast = Forecaster(Slow(0.0), 2.0, Told.counted(Counters().add))
        loads: list[str] = []

        def load(directory: Path, own_process: bool) -> Slow:
            loads.append((directory / "manifest.json").read_text())
            if loads[-1] == "bad":
                raise BadInput("altered")
            return Slow(0.0)

        old = forecast.predictor
        task = asyncio.create_task(forecast.watch(tmp_path, False, load, 0.02))
        await asyncio.sleep(0.06)
        for text in ("bad", "good"):
            fresh = tmp_path / "fresh"
            fresh.write_text(text)
            fresh.replace(tmp_path / "manifest.json")
            await until(lambda text=text: loads[-1:] == [text])
            assert (forecast.predictor is old) or text == "good"
        await until(lambda: forecast.predictor is not old)
        assert forecast.swaps == 1 and loads == ["bad", "good"]
        task.cancel()

    asyncio.run(run())


def test_without_a_budget_no_call_waits_and_predictions_come_when_they_come() -> None:
    async def run() -> None:
        said: list[Prediction] = []
        forecast = Forecaster(Slow(0.02), 0.0, Told.counted(Counters().add))
        assert await forecast(Call("x", "m", 0.0), said.append) is None
        await until(lambda: said)
        assert said[0].source == "neural"

    asyncio.run(run())


def test_a_predictor_that_hangs_does_not_keep_the_process() -> None:
    """Nor calls: beyond those that the thread was asked already, each has that of its type at once."""
    program = """
import asyncio, threading
from swarmx.adapters import predicting
from swarmx.types import Call
predicting.MOST_ASKED = 3
class Hangs:
    def predict(self, calls): threading.Event().wait()
    def fallback_for(self, calls): return ["by type" for _ in calls]
async def main():
    late = []
    forecast = predicting.Forecaster(Hangs(), 0.05, predicting.Told.counted(late.append))
    said = [await forecast(Call(str(i), "m", 0.0), print) for i in range(8)]
    assert said == ["by type"] * 8 and len(late) == 8, (said, late)
asyncio.run(main())
print("left")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == ("left\n", 0), ended.stderr

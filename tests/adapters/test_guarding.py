"""The guard as metrics pages show it, and in the picker, whose lanes share one guard."""

from __future__ import annotations

import asyncio

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.lanes import Lanes
from swarmx.adapters.envoy.picker import Picker
from swarmx.adapters.envoy.pool import PickLimits, Pool
from swarmx.adapters.envoy.ride import Ride
from swarmx.adapters.envoy.settings import PickerSettings
from swarmx.adapters.guarding import expectations, guard_figures
from swarmx.presets import preset
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, ReplicaState

HONEST = Prediction(QuantileGrid(LEVELS, 100 + LEVELS), "neural")
WRONG = Prediction(QuantileGrid(LEVELS, 10_000 + LEVELS), "neural")


def _served(scheduler: Scheduler, said: Prediction | None, first: int, count: int) -> None:
    """Calls of about a hundred tokens, one after the other."""
    for i in range(first, first + count):
        scheduler.arrive(Call(f"c{i}", "m", float(i), type="t"), said, float(i))
        scheduler.finished(CallRecord(f"c{i}", "m", float(i), "ok", output_tokens=90 + i % 20), i + 0.5)


def test_figures_follow_the_predictors_word() -> None:
    scheduler = preset("late")
    scheduler.replicas_changed([ReplicaState("r", "m", slots=4)], 0.0)
    assert guard_figures(scheduler) == {"predictor_heard": 0.0, "predictor_turns": 0.0}
    _served(scheduler, None, 0, 30)
    assert expectations(scheduler) == {"pool_mean": 20.0, "per_type": 10.0}
    _served(scheduler, WRONG, 30, 40)
    told = guard_figures(scheduler)
    assert told["predictor_heard"] == 0.0 and told["predictor_turns"] == 1.0 and told["predictor_loss_ratio"] > 1
    assert expectations(scheduler)["neural"] == scheduler.intake.trust.credit
    assert sum(expectations(scheduler).values()) == 70


def test_the_picker_counts_the_calls_of_all_its_lanes_and_judges_predictions_once() -> None:
    lanes = Lanes("late")
    lanes.cluster.set_replicas([ReplicaState("a:1", "m")], 0.0)
    assert lanes.at_once.intake.trust is lanes.owner.intake.trust is lanes.standby.intake.trust

    async def run() -> dict[str, float]:
        pool = Pool(lanes, asyncio.get_running_loop().time, PickLimits(), Counters())
        pool.set_states([ReplicaState("a:1", "m")])
        rides: list[Ride] = []
        for i, hold_s in enumerate((10.0, 0.0)):  # one by the owner, one that may not be held
            rides.append(await pool.pick(Call(f"c{i}", "m", pool.clock()), None, hold_s))
        for ride in rides:
            pool.end(ride, "ok")
        return expectations(lanes.owner)

    assert asyncio.run(run()) == {"pool_mean": 2.0}


def test_the_pickers_page_has_them() -> None:
    picker = Picker(PickerSettings.model_validate({"model": "m", "replicas": [{"url": "http://127.0.0.1:1"}]}))
    picker.lanes.owner.replicas_changed([ReplicaState("a:1", "m")], 0.0)
    picker.lanes.owner.arrive(Call("c", "m", 0.0), HONEST, 0.0)
    page = picker.counters.text()
    assert "swarmx_picker_expectations_neural 1.0" in page
    assert "swarmx_picker_predictor_heard 0.0" in page

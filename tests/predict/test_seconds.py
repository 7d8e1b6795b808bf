"""Seconds on each candidate replica: engine, correction, calibration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.predict.bundle import write_manifest
from swarmx.predict.seconds import SecondsPredictor, is_queued
from swarmx.predict.seconds_fit import evaluate_seconds, fit_seconds
from swarmx.predict.situations import Situations, recorded, segments, timed
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import CallRecord, ReplicaState

ENGINES = {"fast": EngineConstants(0.01, 0.002, 0.0, 1e-4), "slow": EngineConstants(0.03, 0.006, 0.0, 3e-4)}
SIGMA = 0.5  # of the log of an answer's tokens around its type's


def served(rows: int, seed: int) -> tuple[list[CallRecord], np.ndarray]:
    """Calls on replicas that hold a constant batch; the slow device takes a fifth longer than the formula says.
    Also the true quantiles of each call's tokens."""
    rng = np.random.default_rng(seed)
    normal = np.quantile(rng.normal(size=200_000), LEVELS)
    calls, grids = [], []
    for i in range(rows):
        device, batch = ("fast", "slow")[i % 2], int(rng.integers(0, 4))
        middle = (20.0, 200.0)[int(rng.integers(2))]
        tokens = max(round(middle * np.exp(SIGMA * rng.normal())), 1)
        prompt = int(rng.integers(50, 400))
        engine = ENGINES[device]
        took = engine.p * prompt + tokens * float(engine.tau(batch + 1, 0.0))
        took *= (1.2 if device == "slow" else 1.0) * np.exp(0.1 * rng.normal())
        calls.append(
            CallRecord(
                str(i), "m", 100.0 * i, "ok", type=f"{middle:g}", prompt_tokens=prompt, device=device,
                replica=f"r{i}", dispatched_s=100.0 * i, first_token_s=100.0 * i + engine.p * prompt,
                finished_s=100.0 * i + took, output_tokens=tokens, running_at_dispatch=batch, waiting_at_dispatch=0,
                kv_tokens_at_dispatch=batch * 300,
            )
        )  # fmt: skip
        grids.append(middle * np.exp(SIGMA * normal))
    return calls, np.array(grids)


@pytest.fixture(scope="module")
def learned() -> SecondsPredictor:
    found = fit_seconds(*served(1200, seed=0))
    return SecondsPredictor.of_json(json.loads(json.dumps(found.as_json())))


def replica(device: str = "fast", **fields: object) -> ReplicaState:
    return ReplicaState("r", "m", device=device, slots=4, kv_capacity_tokens=4000, **fields)  # type: ignore[arg-type]


TOKENS = QuantileGrid(LEVELS, 100 * np.exp(SIGMA * np.linspace(-2, 2.5, len(LEVELS))))


def test_held_out_calls_are_covered_as_promised_and_better_than_by_type_and_device(learned: SecondsPredictor) -> None:
    train, _ = served(1200, seed=0)
    test, tokens = served(1500, seed=1)
    found = evaluate_seconds(learned, train, test, tokens)
    for level in (0.1, 0.5, 0.9, 0.95):
        # three standard errors of 1,500 test rows and of the 1,200 that calibrated
        margin = 3 * np.sqrt(level * (1 - level) * (1 / 1500 + 1 / 1200)) + 0.005
        assert abs(found["coverage"][f"{level:g}"] - level) < margin
    ratio = found["baselines"]["per_type_device"]["pinball_ratio"]
    assert ratio["0.5"] < 1 and ratio["0.9"] < 0.97 and ratio["0.95"] < 1


def test_the_correction_finds_what_the_formula_misses(learned: SecondsPredictor) -> None:
    """The log shows no overlap, being a part of the traffic: how crowded a replica was is what it had reported."""
    lone, crowded = (learned.predict(TOKENS, 100, [replica(running=n)])[0].at(0.5)[0] for n in (0, 3))
    true = [float(ENGINES["fast"].tau(n, 0.0)) for n in (1, 4)]
    assert crowded / lone == pytest.approx(true[1] / true[0], rel=0.12)


def test_a_slower_device_a_longer_answer_and_a_queue_take_longer(learned: SecondsPredictor) -> None:
    grid, sources = learned.predict(TOKENS, 100, [replica(), replica("slow"), replica(running=4, waiting=4)])
    assert grid.values.shape == (3, len(LEVELS)) and sources == ("neural",) * 3
    assert grid.at(0.5)[1] > 2 * grid.at(0.5)[0] and grid.at(0.5)[2] > 1.5 * grid.at(0.5)[0]
    longer, _ = learned.predict(TOKENS.scaled(4.0), 100, [replica()])
    assert longer.at(0.5)[0] > 2.5 * grid.at(0.5)[0]


def test_a_cached_prefix_saves_its_prefill(learned: SecondsPredictor) -> None:
    grid, _ = learned.predict(QuantileGrid.point(5.0), 20_000, [replica(), replica()], cached=[0.0, 19_000.0])
    assert grid.at(0.5)[1] < 0.7 * grid.at(0.5)[0]


def test_an_unknown_device_borrows_from_all_at_its_configured_speed(learned: SecondsPredictor) -> None:
    states = [replica("new"), replica("new", speed=2.0), replica("fast"), replica("slow")]
    grid, sources = learned.predict(TOKENS, 100, states)
    assert sources == ("borrowed", "borrowed", "neural", "neural")
    middle = grid.at(0.5)
    ratio = grid.at(0.95) / middle
    assert ratio[0] > 1.1 * max(ratio[2], ratio[3])  # what is not known of it widens its quantiles
    assert middle[2] < middle[0] < middle[3] and middle[1] == pytest.approx(middle[0] / 2, rel=0.15)


def test_all_replicas_at_once_are_the_same_as_one_by_one(learned: SecondsPredictor) -> None:
    states = [
        replica(("fast", "slow", "new")[i % 3], running=i % 5, waiting=i % 3, kv_tokens=90 * i) for i in range(40)
    ]
    together, _ = learned.predict(TOKENS, 300, states, cached=np.arange(40.0))
    alone = [learned.predict(TOKENS, 300, [s], cached=float(i))[0].values[0] for i, s in enumerate(states)]
    np.testing.assert_allclose(together.values, alone)


def test_no_replicas_no_rows(learned: SecondsPredictor) -> None:
    assert learned.predict(TOKENS, 10, [])[0].values.shape == (0, len(LEVELS))


odd = st.one_of(st.floats(), st.integers(-(10**6), 10**12))


@settings(max_examples=100, deadline=None)
@given(device=st.text(max_size=6), a=odd, b=odd, c=odd, d=odd, prompt=odd, cached=odd, scale=st.floats(0, 1e12))
def test_any_report_gives_finite_increasing_seconds(
    learned: SecondsPredictor, device: str, a: float, b: float, c: float, d: float, prompt: float, cached: float,
    scale: float,
) -> None:  # fmt: skip
    state = ReplicaState("r", "m", device, slots=a, kv_capacity_tokens=b, running=c, kv_tokens=d, waiting=a, speed=b)  # type: ignore[arg-type]
    grid, _ = learned.predict(TOKENS.scaled(scale), prompt, [state, replica("slow")], cached)
    assert np.all(np.isfinite(grid.values)) and np.all(np.diff(grid.values) >= 0) and np.all(grid.values > 0)


def test_a_call_queues_where_no_slot_is_free() -> None:
    states = [replica(running=3), replica(running=4), replica(running=1, waiting=1)]
    assert is_queued(Situations.of(states)).tolist() == [False, True, True]


def test_what_a_log_lacks_is_counted_from_overlaps() -> None:
    def call(i: int, start: float, end: float, **fields: object) -> CallRecord:
        return CallRecord(
            str(i), "m", start, "ok", device="d", replica="r", dispatched_s=start, first_token_s=start,
            finished_s=end, output_tokens=11, prompt_tokens=5, **fields,
        )  # type: ignore[arg-type]  # fmt: skip

    calls = [call(0, 0, 10), call(1, 5, 15), call(2, 12, 20), call(3, 0, 0), call(4, 1, 2, running_at_dispatch=7)]
    kept = [calls[i] for i in timed(calls)]
    assert [c.call_id for c in kept] == ["0", "1", "2", "4"]
    at = recorded(kept)
    assert at.running.tolist() == [0, 1, 1, 7] and at.slots.tolist() == [8] * 4
    # call 1 ran from 5 to 15: five seconds beside call 0, three beside call 2
    assert segments(kept[:3], recorded(kept[:3]))[1].batch == pytest.approx(1.8)


def test_slots_are_what_ran_while_others_waited() -> None:
    fields = {"device": "d", "dispatched_s": 0.0, "finished_s": 1.0, "output_tokens": 1}
    queues = [(5, 0), (4, 2), (3, 0)]  # five may run for a moment, while one ends
    calls = [
        CallRecord(str(i), "m", 0.0, "ok", running_at_dispatch=n, waiting_at_dispatch=w, **fields)  # type: ignore[arg-type]
        for i, (n, w) in enumerate(queues)
    ]
    assert recorded(calls).slots.tolist() == [4, 4, 4]


def test_a_log_of_single_tokens_identifies_no_engine() -> None:
    call = CallRecord("a", "m", 0, "ok", device="d", dispatched_s=0.0, first_token_s=1.0, finished_s=2.0,
                      output_tokens=1, running_at_dispatch=1, waiting_at_dispatch=1)  # fmt: skip
    with pytest.raises(ValueError, match="identify"):
        fit_seconds([call], np.ones((1, len(LEVELS))))


def test_a_model_without_seconds_says_what_would_do(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"targets": ["tokens"]})
    with pytest.raises(BadInput, match="dispatched_s"):
        SecondsPredictor.load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"constants": {}}, {"weights": {"": [1.0]}}, {"calibrations": {}}, {"constants": []}]
)
def test_a_damaged_file_of_seconds_is_refused(
    learned: SecondsPredictor, tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / "seconds.json").write_text(json.dumps(learned.as_json() | change))
    write_manifest(tmp_path, {"targets": ["tokens"]})
    with pytest.raises(BadInput, match=r"seconds\.json"):
        SecondsPredictor.load(tmp_path)


def test_training_writes_seconds_where_the_log_has_devices_and_times(trained: Path) -> None:
    assert SecondsPredictor.load(trained).devices == ("cpu",)
    assert json.loads((trained / "metrics.json").read_text())["seconds"]["rows"] > 0
    assert "## seconds" in (trained / "card.md").read_text()

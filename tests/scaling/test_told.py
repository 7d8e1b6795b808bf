"""A scaler explains itself: receipts survive being written, and words and figures agree with the decision."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from swarmx.cli import app
from swarmx.errors import BadInput
from swarmx.scaler import Scaler
from swarmx.scaling import Bounds, PoolSample, Rate, ReplicaView, ScaleReceipt, scaling_preset
from swarmx.scaling.demand import demand_of_counts
from swarmx.scaling.told import receipt_of, told


def receipt(waiting: float = 60.0) -> ScaleReceipt:
    """Of a pool of four with calls waiting, which may rise by two in a minute."""
    policy, _ = scaling_preset("tail_demand")
    scaler = Scaler("tail_demand", policy, Bounds(1, 50, up=Rate(2, 60.0)))
    demand = demand_of_counts(np.linspace(0, 90, 7), waiting, 4.0, 30.0, 0.1, 0.01)
    views = tuple(ReplicaView(f"r{i}", in_flight=1) for i in range(4))
    (scale,) = scaler.step([PoolSample("writer", 120.0, views, waiting, 4.0, demand=demand)])
    assert scale.receipt is not None
    return scale.receipt


def test_a_receipt_says_what_was_wanted_what_came_of_it_and_why() -> None:
    found = receipt()
    words = "\n".join(told(found).lines)
    assert told(found).head == "writer 4 -> 6 replicas at 120.000 s, by tail_demand"
    assert f"tail_demand wanted {found.wanted}: demand from live work" in words
    assert "changed on its way" in words
    assert "faster than 2 per 60 s" in words
    assert "p95" in words


def test_every_term_has_a_row_and_the_terms_add_up_to_the_mean_demand() -> None:
    found = receipt()
    table = told(found).table
    assert table[0][1] == "0-15 s"
    rows = {name: np.array([float(cell) for cell in cells]) for name, *cells in table[1:]}
    assert set(rows) == {"backlog", "in service", "arrivals", "needed", "capacity"}
    mean = rows["backlog"] + rows["in service"] + rows["arrivals"]
    assert (rows["needed"] >= mean - 0.02).all()


def test_the_quantile_that_the_target_holds_is_told() -> None:
    few, many = replace(receipt(), target=1), replace(receipt(), target=1000)
    assert "1 replicas hold p0" in "\n".join(told(few).lines)
    assert "1000 replicas hold p99" in "\n".join(told(many).lines)


def test_a_written_receipt_reads_as_it_was() -> None:
    assert receipt_of(json.loads(json.dumps(asdict(receipt())))) == receipt()


def test_receipts_of_a_running_scaler_have_ids_of_their_own_and_a_date() -> None:
    policy, bounds = scaling_preset("tail_demand")
    scaler = Scaler("tail_demand", policy, bounds)
    times = (1_796_050_450.79, 1_796_050_455.79)
    found = [s.receipt for t in times for s in scaler.step([PoolSample("writer", t, (ReplicaView("r0"),), 9.0, 4.0)])]
    assert len({one.id for one in found if one is not None}) == len(times)
    assert found[0] is not None
    assert "at 2026-11-30 14:54:10 UTC" in told(found[0]).head


@pytest.mark.parametrize(("change", "told_as"), [({"pool": None}, "'pool' is missing"), ({"hue": 1}, "'hue'")])
def test_a_broken_receipt_is_named(change: dict[str, object], told_as: str) -> None:
    row = {k: v for k, v in {**asdict(receipt()), **change}.items() if v is not None or k == "wanted"}
    with pytest.raises(BadInput, match=told_as):
        receipt_of(row)


def test_the_command_explains_a_file_of_receipts_and_a_pool_of_it(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl"
    other = replace(receipt(), id="planner@5", pool="planner", wanted=None, target=4, before=4, changes=("held",))
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in (receipt(), other)))
    whole = CliRunner().invoke(app, ["explain", str(path)])
    assert whole.exit_code == 0
    assert "writer@120" in whole.stdout
    assert "could not say how many" in whole.stdout
    one = CliRunner().invoke(app, ["explain", "planner", "--log", str(path), "--json"])
    assert [row["pool"] for row in json.loads(one.stdout)] == ["planner"]

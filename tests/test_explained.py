"""`swarmx explain` on receipts of real decisions: what is known is told, once, in order of time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmx.cli import app
from swarmx.commands.explained import read_receipts
from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.presets import preset
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction, Receipt, ReplicaState, Start

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def decided(engines: dict[str, EngineConstants] | None, now: float = NOW) -> Receipt:
    """The receipt of a call that finds two free replicas."""
    scheduler = preset("late", engines=engines)
    scheduler.receipts = True
    scheduler.replicas_changed([ReplicaState(name, "m", "d") for name in ("r0", "r1")], now)
    (start,) = scheduler.arrive(Call("a", "m", now), Prediction(QuantileGrid.point(10), "oracle"), now)
    assert isinstance(start, Start)
    assert start.receipt is not None
    return start.receipt


def explained(path: Path, *receipts: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in receipts))
    said = CliRunner().invoke(app, ["explain", str(path)])
    assert said.exit_code == 0
    return said.stdout


def test_a_choice_without_constants_says_that_it_counted(tmp_path: Path) -> None:
    said = explained(tmp_path / "r.jsonl", asdict(decided(None)))
    assert "late's choice by counts" in said
    assert "cheapest" not in said
    assert "prediction: oracle, output tokens p50 10" in said, "no model version leaves no gap"


def test_a_choice_with_constants_shows_what_else_there_was(tmp_path: Path) -> None:
    said = explained(tmp_path / "r.jsonl", asdict(decided({"d": EngineConstants(a=1.0)})))
    assert "cheapest replica for late" in said
    assert "own finish s" in said
    assert "2023-11-14 22:13:20 UTC" in said
    assert "at 12.500 s" in explained(tmp_path / "s.jsonl", asdict(decided(None, 12.5)))


def test_the_same_decision_again_and_again_is_told_once_and_the_first_comes_first(tmp_path: Path) -> None:
    one = asdict(decided(None))
    later = [one | {"id": f"a/{i}", "decided_s": NOW + i} for i in (3, 2)]
    other = one | {"id": "a/owner", "decided_s": NOW + 9, "policy": "push"}
    said = explained(tmp_path / "r.jsonl", other, *later, one)
    assert "decided 3 times alike within 3.0 s" in said
    assert [line.split()[0] for line in said.splitlines() if " by " in line and "start" in line] == ["a/1", "a/owner"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no receipt"),
        ('{"id": 3}\n', "receipt 3 has no valid 'action'"),
        ('{"id": "a", "pool": "m", "target": 2}\n', "is missing"),
        ('{"a": 1}\n', "without an id"),
    ],
)
def test_what_is_no_receipt_is_one_sentence(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    said = CliRunner().invoke(app, ["explain", str(path)])
    assert isinstance(said.exception, BadInput)
    assert told in str(said.exception)


def test_a_receipt_with_a_field_of_another_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(asdict(decided(None)) | {"decided_s": "noon"}))
    with pytest.raises(BadInput, match="no valid 'decided_s'"):
        read_receipts(path)


def test_a_place_that_is_not_there_is_told(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["explain", "a", "--log", str(tmp_path / "nowhere")])
    assert "no such file or directory" in str(said.exception)

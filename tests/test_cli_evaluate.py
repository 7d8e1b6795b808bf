"""`swarmx evaluate`, `demo`, `policies` as a user types them: what they print, what they write, how they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sim"))

from made_log import made_log

from swarmx.cli import main
from swarmx.commands.evaluation_run import Request, shipped_log
from swarmx.logs.table import write_log
from swarmx.sim.report import read_report


def swarmx(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Exit code of the command line."""
    monkeypatch.setattr(sys, "argv", ["swarmx", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.parquet"
    write_log(made_log(60), path)
    return path


def test_policies_lists_every_registry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert swarmx(monkeypatch, "policies", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    names = {name for entries in found.values() for name in entries}
    assert {
        "late",
        "swarmx",
        "least_outstanding_per_speed",
        "oldest_workflow",
        "headline",
        "real_log",
        "otel",
    } <= names
    assert all(line for entries in found.values() for line in entries.values())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--suite", "everything"], "unknown suite 'everything'; choose one of headline, real_log"),
        (["--policy", "late,fastest"], "unknown policy 'fastest'; choose from random, round_robin"),
        (["--model", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_name_is_refused_in_one_sentence_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    log: Path,
    words: list[str],
    told: str,
) -> None:
    out = tmp_path / "out"
    assert swarmx(monkeypatch, "evaluate", "--log", str(log), "--out", str(out), *words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert said.err.strip().count("\n") == 0
    assert not out.exists()


def test_a_missing_log_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert swarmx(monkeypatch, "evaluate", "--log", str(tmp_path / "none.parquet")) == 2
    assert "none.parquet" in capsys.readouterr().err


def test_the_command_in_the_report_does_not_depend_on_where_it_is_written() -> None:
    first = Request(("headline",), quick=True, seeds=3, out=Path("a"), processes=1)
    second = Request(("headline",), quick=True, seeds=3, out=Path("b"), quiet=True)
    assert first.command == second.command == "swarmx evaluate --suite headline --quick --seeds 3"


@pytest.mark.slow
def test_evaluate_trains_simulates_and_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    words = [
        "evaluate",
        "--log",
        str(log),
        "--suite",
        "headline,real_log",
        "--policy",
        "late",
        "--quick",
        "--seeds",
        "2",
    ]
    out = tmp_path / "out"
    assert swarmx(monkeypatch, *words, "--out", str(out), "--processes", "1") == 0
    said = capsys.readouterr().out
    report = read_report(out / "report.json")
    assert {row.suite for row in report.rows} == {"headline", "real_log"}
    assert {row.arm for row in report.rows if row.policy == "late"} >= {"trained", "type", "oracle", "none"}
    assert {row.level for row in report.rows} == {"call", "workflow"}
    assert report.figures.calibration is not None
    assert [one.level for one in report.figures.fidelity] == ["call", "workflow"]
    assert "2 seeds" in said.strip().splitlines()[-1] or "2 seeds" in said[-400:]
    assert "<svg" in (out / "report.html").read_text()
    # the second run finds model and cells where they were, and prints the same rows
    assert swarmx(monkeypatch, *words, "--out", str(out), "--processes", "1", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == json.loads((out / "report.json").read_text())["rows"]
    assert len(again["rows"]) == len(report.rows)


@pytest.mark.slow
def test_demo_runs_on_the_shipped_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shipped_log()
    assert swarmx(monkeypatch, "demo", "--out", str(tmp_path), "--seeds", "2") == 0
    said = capsys.readouterr().out
    assert "late" in said
    assert read_report(tmp_path / "report.json").meta.data["name"] == "execution_log.parquet"
    assert (tmp_path / "report.html").exists()

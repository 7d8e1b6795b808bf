"""report.json: what is written can be read again, and a broken file is named and explained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swarmx.errors import BadInput
from swarmx.sim.report import Curve, Figures, Meta, Ratio, Report, Row, read_report, write_report

META = Meta([1, 2], "abc", {"name": "log", "rows": 3}, {"swarmx": "0"}, {"load": "share"}, "swarmx evaluate", "now")
RATIO = Ratio(0.9, 0.8, 0.7, (0.6, 0.8))
ROW = Row("headline", "log", "het", 0.8, "late", "trained", "workflow", 100, 1.0, 2.0, 3.0, vs={"led": RATIO})
CURVE = Curve("headline", "het", 0.8, "late", "trained", [0.5, 0.9], [1.0, 2.0], {"queue": 0.5, "decode": 0.7})


def report(**changes: object) -> Report:
    return replace(Report(META, [ROW], Figures([CURVE])), **changes)


def test_a_report_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_report(report(), tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report()


def test_numbers_keep_six_digits_and_the_same_report_the_same_bytes(tmp_path: Path) -> None:
    wide = report(rows=[replace(ROW, p99_s=3.123456789)])
    write_report(wide, tmp_path / "a.json")
    write_report(report(rows=[replace(ROW, p99_s=3.1234567)]), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_report(tmp_path / "a.json").rows[0].p99_s == 3.12346


def test_the_file_has_the_agreed_fields(tmp_path: Path) -> None:
    write_report(report(), tmp_path / "report.json")
    whole = json.loads((tmp_path / "report.json").read_text())
    assert {"seeds", "git", "data", "versions", "definitions"} <= whole["meta"].keys()
    assert whole["rows"][0]["vs"]["led"] == {"p50": 0.9, "p95": 0.8, "p99": 0.7, "ci95": [0.6, 0.8]}
    agreed = {
        "suite", "workload", "regime", "load", "policy", "arm", "level", "n", "p50_s", "p95_s", "p99_s",
        "ttft_p99_s", "slo_attainment", "max_rate_at_slo", "replica_seconds", "mean_replicas", "flaps", "vs", "extra",
    }  # fmt: skip
    assert whole["rows"][0].keys() == agreed


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        (replace(ROW, p95_s=9.0), "rows.0"),
        (replace(ROW, p99_s=float("nan")), "rows.0"),
        (replace(ROW, n=0), "n must be at least 1"),
        (replace(ROW, vs={"led": replace(RATIO, ci95=(0.9, 0.8))}), "vs.led"),
    ],
)
def test_a_row_that_breaks_a_promise_is_never_written(tmp_path: Path, broken: Row, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        write_report(report(rows=[broken]), tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"n": 100', '"n": "many"', r"rows\.0\.n: .*'many'"),
        ('"policy": "late"', '"polizei": "late"', r"rows\.0\.policy"),
        ('"level": "workflow"', '"level": "day"', r"rows\.0\.level: .*'call' or 'workflow'"),
        ('"rows": [', '"rows": ', "JSON"),
    ],
)
def test_a_broken_file_is_explained_in_one_sentence(tmp_path: Path, before: str, after: str, told: str) -> None:
    path = tmp_path / "report.json"
    write_report(report(), path)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(BadInput, match=told) as problem:
        read_report(path)
    assert str(path) in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="swarmx evaluate"):
        read_report(tmp_path / "none.json")

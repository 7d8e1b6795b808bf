from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmx.commands.logs import log_app
from swarmx.errors import BadInput
from swarmx.logs import IMPORTERS
from swarmx.logs.table import read_log

CSV = "t,n,kind,wf,end\n" + "".join(f"{i},{5 + i % 7},k{i % 2},w{i // 3},{i + 0.5}\n" for i in range(30))
MAPPED = [
    *("--map", "arrival_s=t", "--map", "output_tokens=n", "--map", "type=kind"),
    *("--map", "workflow_id=wf", "--map", "finished_s=end", "--set", "model=m"),
]


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(log_app, [str(a) for a in arguments])
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "calls.csv").write_text(CSV)
    run("import", tmp_path / "calls.csv", *MAPPED, "--out", tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_import_writes_a_log_and_says_how_much(tmp_path: Path, log: Path) -> None:
    assert len(read_log(log)) == 30
    told = json.loads(run("import", tmp_path / "calls.csv", *MAPPED, "--out", log, "--json"))
    assert (told["calls"], told["workflows"], told["about"]["source"]) == (30, 10, "calls.csv")


def test_describe_prints_tables_and_json(log: Path) -> None:
    text = run("describe", log)
    for title in ("Lengths and times", "Names", "Load over time", "Workflows", "Missing", "What it can be used for"):
        assert title in text
    told = json.loads(run("describe", log, "--json"))
    assert (told["calls"], told["shape"]["calls"]["mean"], told["about"]["format"]) == (30, 3.0, "columns")


def test_check_exits_with_1_only_when_a_check_fails(tmp_path: Path, log: Path) -> None:
    assert len(run("check", log).splitlines()) == len(json.loads(run("check", log, "--json"))["checks"])
    (tmp_path / "calls.csv").write_text(CSV.replace(",5,", ",0,"))
    run("import", tmp_path / "calls.csv", *MAPPED, "--out", log)
    assert "failed  answers" in run("check", log, code=1)
    assert json.loads(run("check", log, "--json", code=1))["checks"]


def test_names_with_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text(CSV.replace("k1", "[/red]"))
    run("import", tmp_path / "calls.csv", *MAPPED, "--out", tmp_path / "log.parquet")
    assert "[/red]" in run("describe", tmp_path / "log.parquet")


def test_formats_lists_every_importer() -> None:
    assert set(json.loads(run("import", "--formats", "--json"))) == set(IMPORTERS)
    assert "otel" in run("import", "--formats")


def test_bad_input_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text(CSV.replace("\n7,", "\nnan,"))
    with pytest.raises(BadInput, match="row 8"):
        run("import", tmp_path / "calls.csv", *MAPPED, "--out", tmp_path / "log.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["calls.csv"]


def test_import_needs_a_source_and_a_target() -> None:
    with pytest.raises(BadInput, match="needs a SOURCE and --out"):
        run("import")


def test_help_shows_examples() -> None:
    assert "swarmx log import" in run("import", "--help").split("Examples:")[1]

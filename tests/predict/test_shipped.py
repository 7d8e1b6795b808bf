"""The checkpoint that ships: small, loadable, and better than the strong baseline on the log's held-out templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmx.cli import app
from swarmx.logs.table import read_log
from swarmx.predict.bundle import shipped
from swarmx.predict.evaluate import evaluate
from swarmx.predict.runtime import Predictor

LOG = Path(__file__).resolve().parents[2] / "data" / "execution_log.parquet"


def test_it_is_small_and_loads() -> None:
    assert sum(path.stat().st_size for path in shipped().iterdir()) < 15e6
    assert Predictor.load(shipped()).targets[0] == "tokens"


def test_its_metrics_are_what_the_log_gives_again() -> None:
    found = evaluate(Predictor.load(shipped()), read_log(LOG))
    stored = json.loads((shipped() / "metrics.json").read_text())
    for arm, metrics in found["targets"]["tokens"].items():
        before = stored["targets"]["tokens"][arm]["pinball"]
        assert metrics["pinball"] == pytest.approx(before, rel=1e-3)  # float32 on another machine


def test_it_beats_quantiles_per_type_where_there_is_data_enough_to_tell() -> None:
    # 547 held-out calls: about 27 above q0.95, which a bootstrap over templates resolves; q0.99 has 5
    tokens = json.loads((shipped() / "metrics.json").read_text())["targets"]["tokens"]
    for arm in ("with_type", "without_type"):
        for level in ("0.5", "0.9", "0.95"):
            assert tokens[arm]["baselines"]["per_type"]["pinball_ratio"][level] < 1
            assert abs(tokens[arm]["coverage"][level] - float(level)) < 0.06


def test_predict_shows_quantiles_and_draws_them(tmp_path: Path) -> None:
    png = tmp_path / "p.png"
    done = CliRunner().invoke(app, ["predict", "--prompt", "Write a poem about a lighthouse.", "--png", str(png)])
    assert done.exit_code == 0 and "output tokens" in done.output
    assert png.read_bytes()[:4] == b"\x89PNG"


def test_predict_reads_a_pipe_and_prints_json() -> None:
    done = CliRunner().invoke(app, ["predict", "--json"], input="Summarise the report.")
    [found] = json.loads(done.output)
    assert len(found["tokens"]) == len(found["levels"]) == 16 and found["source"] == "neural"


@pytest.mark.slow
def test_train_on_a_log_file_ends_with_a_usable_model(tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = CliRunner().invoke(app, ["train", str(LOG), "--out", str(out), "--quick", "--json"])
    assert done.exit_code == 0, done.output
    metrics = json.loads(done.output)
    assert metrics["test_rows"] + metrics["train_rows"] == 3000
    assert Predictor.load(out).version != ""

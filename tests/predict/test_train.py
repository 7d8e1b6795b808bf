import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmx.drift import Reference
from swarmx.errors import BadInput
from swarmx.predict.evaluate import evaluate
from swarmx.predict.fit import FitConfig
from swarmx.predict.runtime import Predictor
from swarmx.predict.train import TrainConfig, train
from swarmx.types import Call, CallRecord

MakeLog = Callable[..., list[CallRecord]]

QUICK = TrainConfig(fit=FitConfig(epochs=3, landmarks=32), plots=False)


def test_the_held_out_rows_are_predicted_better_than_by_no_text(trained: Path) -> None:
    # 3 kinds with medians 3, 60, 200: most of the log's variance is between them, so R2 must be well above one half
    metrics = json.loads((trained / "metrics.json").read_text())["targets"]["tokens"]["without_type"]
    assert metrics["r2_log"] > 0.7
    assert all(metrics["baselines"]["unconditional"]["pinball_ratio"][level] < 0.8 for level in ("0.5", "0.9"))


def test_the_metrics_on_disk_are_those_of_the_loaded_model(trained: Path, make_log: MakeLog) -> None:
    again = evaluate(Predictor.load(trained), make_log(400))
    stored = json.loads((trained / "metrics.json").read_text())
    assert again["targets"] == stored["targets"]


def test_the_same_seed_gives_the_same_model(tmp_path: Path, make_log: MakeLog) -> None:
    for name in ("a", "b"):
        train(make_log(120), tmp_path / name, QUICK)
    assert (tmp_path / "a" / "manifest.json").read_text() == (tmp_path / "b" / "manifest.json").read_text()


def test_a_log_without_prompts_still_gives_quantiles_per_type(tmp_path: Path, make_log: MakeLog) -> None:
    metrics = train(make_log(240, prompts=False), tmp_path / "m", QUICK)
    assert any("per call type" in note for note in metrics["notes"])
    predictor = Predictor.load(tmp_path / "m")
    story, word = predictor.predict([Call(id=k, model="m", arrival_s=0.0, type=k) for k in ("story", "word")])
    assert story.source == "per_type" and story.tokens.at(0.5) > word.tokens.at(0.5)
    assert not (tmp_path / "m" / "heads.onnx").exists()


def test_a_log_without_types_falls_back_to_the_pool(tmp_path: Path, make_log: MakeLog) -> None:
    metrics = train(make_log(120, typed=False), tmp_path / "m", QUICK)
    assert any("No call has a type" in note for note in metrics["notes"])
    [found] = Predictor.load(tmp_path / "m").predict([Call(id="a", model="m", arrival_s=0.0, prompt="One word: bees?")])
    assert found.source == "neural"


def test_too_few_calls_are_refused_and_leave_nothing(tmp_path: Path, make_log: MakeLog) -> None:
    with pytest.raises(BadInput, match="training needs"):
        train(make_log(10), tmp_path / "m", QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_an_encoder_is_refused_by_name(tmp_path: Path, make_log: MakeLog) -> None:
    with pytest.raises(BadInput, match=r"encoder\.onnx is missing"):
        train(make_log(120), tmp_path / "m", TrainConfig(encoder=tmp_path / "nowhere", plots=False))


def test_the_card_has_its_pictures(tmp_path: Path, make_log: MakeLog) -> None:
    train(make_log(120), tmp_path / "m", TrainConfig(fit=QUICK.fit))
    card = (tmp_path / "m" / "card.md").read_text()
    assert "calibration.png" in card and (tmp_path / "m" / "calibration.png").stat().st_size > 5000
    assert "ratio to per_type_device" in card and "width of per_type" in card
    assert "| without n-grams |" in card and "100% of the groups" in card
    studied = json.loads((tmp_path / "m" / "metrics.json").read_text())["study"]
    assert studied["ablation"]["everything"]["r2_log"] > studied["ablation"]["without types"]["r2_log"] - 0.05
    assert [row["groups"] for row in studied["learning_curve"]] == sorted(
        row["groups"] for row in studied["learning_curve"]
    )


def test_calls_that_were_cut_off_are_not_learned_from(tmp_path: Path, make_log: MakeLog) -> None:
    from dataclasses import replace

    log = [replace(r, status="timeout", output_tokens=10**6) if i % 5 == 0 else r for i, r in enumerate(make_log(200))]
    train(log, tmp_path / "m", QUICK)
    predictor = Predictor.load(tmp_path / "m")
    assert predictor.manifest["log"]["ended_well"] == 160
    assert np.max(predictor.fallback["tokens"].pool) < 10**5


def test_an_encoder_that_has_seen_answers_is_named_in_the_notes(tmp_path: Path, make_log: MakeLog) -> None:
    from swarmx.predict.bundle import ENCODER_FILES, shipped

    (tmp_path / "encoder").mkdir()
    for name in ENCODER_FILES:
        (tmp_path / "encoder" / name).write_bytes((shipped() / name).read_bytes())
    about = json.loads((shipped() / "encoder.json").read_text()) | {"learned_from": "the answers in x.parquet"}
    (tmp_path / "encoder" / "encoder.json").write_text(json.dumps(about))
    config = TrainConfig(fit=QUICK.fit, encoder=tmp_path / "encoder", plots=False)
    metrics = train(make_log(120), tmp_path / "m", config)
    assert any("the answers in x.parquet" in note for note in metrics["notes"])


def test_training_leaves_what_a_drift_monitor_starts_from(trained: Path) -> None:
    reference = Reference.from_json(json.loads((trained / "drift.json").read_text()))
    assert reference.pool.rows == json.loads((trained / "manifest.json").read_text())["log"]["trained_on"]
    assert reference.groups
    assert 0 < reference.pool.loss < 10

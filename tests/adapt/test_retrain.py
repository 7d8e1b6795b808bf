"""A retraining writes a whole model with the encoder it was given, learns the new level, and stays in its bounds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from adapt_stream import stream
from patience import wait_for

from swarmx.adapt.example import targets_of
from swarmx.adapt.model import StoredModel
from swarmx.adapt.retrain import Changed, Job, Plan, describe, job_of, rebased, retrain
from swarmx.adapt.worker import ProcessWorker, peak_bytes
from swarmx.drift import Group
from swarmx.errors import BadInput
from swarmx.predict.bundle import read_manifest

ALL: Group = ("*", "m", "gpu")
SMALL = Plan(landmarks=32, count_landmarks=16, hidden=16, batch=128, epochs=2)


def job(model: StoredModel, before: int, after: int, factor: float = 2.0, **rest: object) -> Job:
    """Calls of which the latter are `factor` times as long; the alarm knows the beginning badly."""
    records = [*stream(before, seed=1), *stream(after, seed=2, factor=factor, first=before)]
    examples = [one.example for one in model.read(records, 0)]
    changed = [Changed(ALL, before - 40, before + 50, "longer")] if after else []
    return Job(examples, np.ones(len(examples)), model.directory, changed, plan=SMALL, **rest)  # type: ignore[arg-type]


def test_older_calls_are_moved_to_the_level_after_the_change(loaded: StoredModel) -> None:
    """The factor is told from 100 fresh calls with sd 0.3: 2 within 4 standard errors of a median."""
    found = job(loaded, 300, 100)
    moved_targets, moved = rebased(targets_of(found.examples), found)
    assert set(moved) == {(kind, "m", "gpu") for kind in ("story", "word", "list")}
    assert all(abs(np.log(factor / 2)) < 0.2 for factor in moved.values())
    before, after = moved_targets.values[:290, 0], targets_of(found.examples).values[:290, 0]
    assert np.median(np.log(before / after)) == pytest.approx(np.log(2), abs=0.2)
    assert (moved_targets.values[300:] == targets_of(found.examples).values[300:]).all()


def test_without_a_change_nothing_is_moved(loaded: StoredModel) -> None:
    same = job(loaded, 300, 100, factor=1.0)
    targets, moved = rebased(targets_of(same.examples), same)
    assert moved == {}
    assert (targets.values == targets_of(same.examples).values).all()


def test_a_retrained_model_is_whole_and_knows_the_new_level(loaded: StoredModel, tmp_path: Path) -> None:
    metrics = retrain(job(loaded, 300, 120), tmp_path / "new")
    manifest = read_manifest(tmp_path / "new")
    assert manifest["files"]["encoder.onnx"] == loaded.encoder
    assert {"drift.json", "metrics.json", "card.md"} <= manifest["files"].keys()
    assert metrics["targets"]["tokens"]["with_type"]["rows"] == 420
    model = StoredModel.load(tmp_path / "new")
    assert model.reference is not None
    fresh = loaded.read(stream(200, seed=7, factor=2.0), 0)
    tokens = np.array([one.example.tokens for one in fresh])
    ratio = np.median(np.log(tokens / model.tokens(fresh)[:, 6]))
    assert abs(ratio) < 0.15 < np.median(np.log(tokens / loaded.tokens(fresh)[:, 6]))


def test_too_few_calls_are_refused(loaded: StoredModel, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="too few to retrain on"):
        retrain(job(loaded, 30, 0), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_described_job_comes_back_as_it_was(loaded: StoredModel) -> None:
    one = job(loaded, 20, 20, reason="drift")
    assert job_of(describe(one), one.examples, one.weights) == one


@pytest.mark.slow
def test_the_worker_process_writes_the_model_and_tells_what_it_took(loaded: StoredModel, tmp_path: Path) -> None:
    worker = ProcessWorker(tmp_path / "work")
    worker.start(job(loaded, 200, 0))
    with pytest.raises(RuntimeError, match="is running"):
        worker.start(job(loaded, 200, 0))
    result = wait_for(worker.poll)
    assert result.problem == ""
    assert result.directory is not None
    assert StoredModel.load(result.directory).version != loaded.version
    assert 0 < result.peak_bytes < 1 << 30
    assert worker.poll() is None


def test_a_process_does_not_count_the_memory_of_whoever_started_it() -> None:
    ballast = np.ones(1 << 26)  # 512 MB, written
    says = "from swarmx.adapt.worker import peak_bytes; print(peak_bytes())"
    child = int(subprocess.run([sys.executable, "-c", says], check=True, capture_output=True).stdout)
    assert 0 < child < ballast.nbytes < peak_bytes()


@pytest.mark.slow
def test_bad_material_out_of_memory_and_out_of_time_are_told_in_a_sentence(loaded: StoredModel, tmp_path: Path) -> None:
    few = ProcessWorker(tmp_path / "few")
    few.start(job(loaded, 20, 0))
    assert "too few to retrain on" in wait_for(few.poll).problem
    slow = ProcessWorker(tmp_path / "slow", limit_s=0.2)
    slow.start(job(loaded, 200, 0))
    result = wait_for(slow.poll)
    assert result.directory is None
    assert "took longer than 0.2 s" in result.problem
    assert list((tmp_path / "slow").iterdir()) == []


@pytest.mark.fault
@pytest.mark.slow
def test_a_killed_worker_leaves_no_model(loaded: StoredModel, tmp_path: Path) -> None:
    worker = ProcessWorker(tmp_path / "work")
    worker.start(job(loaded, 200, 0))
    assert worker.process is not None
    time.sleep(0.5)
    os.kill(worker.process.pid, signal.SIGKILL)
    result = wait_for(worker.poll)
    assert result.directory is None
    assert "killed by SIGKILL" in result.problem
    worker.start(job(loaded, 20, 0))  # and the next one starts
    assert "too few" in wait_for(worker.poll).problem

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmx.predict.checkpoint import checkpoint_of
from swarmx.predict.fit import FitConfig
from swarmx.predict.train import TrainConfig, train_resumable
from swarmx.types import CallRecord

MakeLog = Callable[..., list[CallRecord]]
CONFIG = TrainConfig(fit=FitConfig(epochs=4, landmarks=16, count_landmarks=16), plots=False)


class Killed(Exception):
    """Stands for a process that ends in the middle."""


@pytest.mark.slow
def test_a_killed_training_goes_on_and_ends_with_the_same_model(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(120)
    train_resumable(log, tmp_path / "whole", CONFIG)

    def kill(what: str, done: float) -> None:
        steps.append(what)
        if what == "network" and done >= 0.5:
            raise Killed

    steps: list[str] = []
    with pytest.raises(Killed):
        train_resumable(log, tmp_path / "killed", CONFIG, kill)
    assert not (tmp_path / "killed").exists() and (tmp_path / ".killed.progress" / "networks.npz").is_file()
    again: list[tuple[str, float]] = []
    train_resumable(log, tmp_path / "killed", CONFIG, lambda what, done: again.append((what, done)))
    assert again[0] == ("resumed", 1.0)
    assert [done for what, done in again if what == "network"] == [0.75, 1.0]  # two of four epochs were left
    assert not (tmp_path / ".killed.progress").exists()
    whole, killed = (tmp_path / name / "heads.onnx" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("whole", "killed")]
    assert manifests[0] == manifests[1]


def test_another_log_or_config_begins_anew(tmp_path: Path) -> None:
    first, known = checkpoint_of(tmp_path / "m", "a")
    first.store("x", {"y": np.arange(3)})
    assert not known and checkpoint_of(tmp_path / "m", "a")[1]
    second, known = checkpoint_of(tmp_path / "m", "b")
    assert not known and second.load("x") is None


def test_a_damaged_step_is_done_again(tmp_path: Path) -> None:
    place, _ = checkpoint_of(tmp_path / "m", "a")
    place.store("x", {"y": np.arange(3)})
    file = place.directory / "x.npz"
    file.write_bytes(file.read_bytes()[:40])
    assert place.load("x") is None

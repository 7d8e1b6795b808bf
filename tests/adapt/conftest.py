"""One small model for all tests of the package, trained once."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapt_stream import stream

from swarmx.adapt.model import StoredModel


@pytest.fixture(scope="session")
def first_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model directory trained on 400 calls of the stream."""
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train

    out = tmp_path_factory.mktemp("adapt") / "first"
    fit = FitConfig(epochs=4, members=4, left_out=1, landmarks=32, count_landmarks=16, hidden=16)
    train(stream(400, seed=9), out, TrainConfig(fit, plots=False))
    return out


@pytest.fixture(scope="session")
def loaded(first_model: Path) -> StoredModel:
    return StoredModel.load(first_model)


@pytest.fixture(scope="session")
def second_model(first_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another version, retrained from 300 calls that are twice as long."""
    import numpy as np

    from swarmx.adapt.retrain import Job, Plan, retrain

    model = StoredModel.load(first_model)
    examples = [one.example for one in model.read(stream(300, seed=5, factor=2.0), 0)]
    out = tmp_path_factory.mktemp("adapt") / "second"
    plan = Plan(landmarks=32, count_landmarks=16, hidden=16, batch=128, epochs=4)
    retrain(Job(examples, np.ones(len(examples)), first_model, plan=plan), out)
    return out

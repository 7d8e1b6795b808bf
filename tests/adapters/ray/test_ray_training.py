"""Training and retraining on a real local Ray give what one machine gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import wait_for

from swarmx.errors import BadInput
from swarmx.logs.many import log_files, read_logs
from swarmx.logs.table import write_log
from swarmx.types import CallRecord

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # Ray Data of its own settings
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]
FORMS = {
    "long": "Tell the whole story of {} and {}.",
    "short": "In one word: {} or {}?",
    "list": "List facts on {}, {}.",
}
LENGTHS = {"long": 200.0, "short": 3.0, "list": 60.0}
SUBJECTS = ("rivers", "bread", "bees", "tax law", "glaciers", "chess", "sailing", "volcanoes", "tea", "opera")


def draw(rows: int) -> list[CallRecord]:
    rng, records = np.random.default_rng(3), []
    for i in range(rows):
        kind = str(rng.choice(list(FORMS)))
        a, b = (SUBJECTS[k] for k in rng.integers(10, size=2))
        tokens = int(np.ceil(LENGTHS[kind] * rng.lognormal(0, 0.4)))
        records.append(
            CallRecord(
                call_id=f"c{i}", model="m", arrival_s=float(i), status="ok", type=kind, prompt=FORMS[kind].format(a, b),
                prompt_group=f"{kind}{a}{b}", output_tokens=tokens, device="cpu", dispatched_s=float(i),
                finished_s=i + tokens / 50,
            )
        )  # fmt: skip
    return records


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, as a recorder leaves them."""
    place, records = tmp_path_factory.mktemp("log"), draw(180)
    for i in range(3):
        write_log(records[60 * i : 60 * i + 60], place / f"part-{i}.parquet")
    return place


@pytest.fixture(scope="module")
def here(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that this machine trains."""
    from swarmx.predict.train import train

    out = tmp_path_factory.mktemp("here") / "model"
    train(read_logs(log), out, quick())
    return out


def quick() -> Any:
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig

    return TrainConfig(fit=FitConfig(epochs=3, landmarks=32), plots=False)


def test_one_machine_and_a_cluster_train_the_same_model(ray_serve: Any, log: Path, here: Path, tmp_path: Path) -> None:
    from swarmx.adapters.ray_training.fitting import RayMeans
    from swarmx.adapters.ray_training.reading import read_logs_on_ray
    from swarmx.predict.train import train

    records = read_logs_on_ray(log_files(log))
    assert records == read_logs(log)
    means = RayMeans(store=tmp_path / "embeddings").means()
    train(records, tmp_path / "model", quick(), means=means)
    ours, theirs = (json.loads((d / "manifest.json").read_text()) for d in (here, tmp_path / "model"))
    assert _predictions(tmp_path / "model") == pytest.approx(_predictions(here), rel=1e-4)
    assert ours["calibration"].keys() == theirs["calibration"].keys()
    (kept,) = (tmp_path / "embeddings").rglob("*.parquet")
    before = kept.stat().st_mtime_ns
    again = means.embed(here, [record.prompt for record in records[:40] if record.prompt])
    assert again.shape[0] == 40 and np.isfinite(again).all()
    # what is in the store is not computed again; what was held out of the training is, and is added
    assert kept.stat().st_mtime_ns == before


def _predictions(model: Path) -> np.ndarray[Any, Any]:
    from swarmx.predict.runtime import Predictor
    from swarmx.types import Call

    calls = [Call(r.call_id, "m", 0.0, r.prompt or "", type=r.type) for r in draw(50)]
    return np.array([p.tokens.values for p in Predictor.load(model).predict(calls)])


def test_a_damaged_file_is_named_as_on_one_machine(ray_serve: Any, log: Path, tmp_path: Path) -> None:
    from swarmx.adapters.ray_training.reading import read_logs_on_ray

    bad = tmp_path / "part-9.parquet"
    bad.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadInput, match=r"part-9\.parquet"):
        read_logs_on_ray([*log_files(log), bad])


@pytest.fixture
def job(here: Path, log: Path) -> Any:
    from swarmx.adapt.example import examples_of
    from swarmx.adapt.retrain import Job, Plan
    from swarmx.predict.embed import TextEncoder
    from swarmx.predict.embedding_store import encoder_sha

    examples = examples_of(read_logs(log), TextEncoder.load(here), encoder_sha(here), 0)
    return Job(examples, np.ones(len(examples)), here, reason="test", plan=Plan(epochs=2, landmarks=32))


def test_a_retraining_on_ray_gives_the_model_of_a_process(ray_serve: Any, job: Any, tmp_path: Path) -> None:
    from swarmx.adapt.worker import ProcessWorker
    from swarmx.adapters.ray_training.retraining import RayWorker

    directories = []
    for worker in (ProcessWorker(tmp_path / "process"), RayWorker(tmp_path / "ray")):
        worker.start(job)
        with pytest.raises(RuntimeError, match="running"):
            worker.start(job)
        result = wait_for(worker.poll)
        assert result.directory is not None, result.problem
        assert result.cpu_s > 0 and result.peak_bytes > 0 and worker.poll() is None
        directories.append(result.directory)
    assert _predictions(directories[1]) == pytest.approx(_predictions(directories[0]), rel=1e-4)


def test_a_retraining_that_cannot_be_done_says_why_and_a_cancelled_one_leaves_nothing(
    ray_serve: Any, job: Any, tmp_path: Path
) -> None:
    from dataclasses import replace

    from swarmx.adapters.ray_training.retraining import RayWorker

    worker = RayWorker(tmp_path / "ray")
    worker.start(replace(job, examples=job.examples[:10], weights=job.weights[:10]))
    result = wait_for(worker.poll)
    assert result.directory is None and "too few" in result.problem
    worker.start(job)
    worker.cancel()
    assert worker.poll() is None and list((tmp_path / "ray").glob("job-*/*")) == []
    slow = RayWorker(tmp_path / "slow", limit_s=0.0)
    slow.start(job)
    assert "longer than 0 s" in wait_for(slow.poll).problem

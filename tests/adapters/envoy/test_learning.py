"""The whole loop behind a real Envoy: records of answers, a trainer beside, a new model without a restart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from envoy_rig import Backend, Rig, needs_envoy, rig, settings_for
from patience import PATIENCE_S, until

from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapters.adaptation import Adapting
from swarmx.adapters.envoy.picker import Picker, load_predictor
from swarmx.types import Call, CallRecord

pytestmark = [pytest.mark.envoy, pytest.mark.slow, needs_envoy]
DEPLOY = Path(__file__).parents[3] / "deploy"
FORMS = {"story": "Write a long story about {} and {}.", "word": "Name one colour for {} and {}."}
MEDIANS = {"story": 200.0, "word": 8.0}
TOPICS = ("rivers", "bread", "bees", "glaciers", "chess", "sailing", "tea", "opera")


def calls(count: int, seed: int, factor: float = 1.0) -> Iterator[tuple[str, str, int]]:
    """(type, prompt, answer's tokens); lengths follow from the type, times the factor."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        kind = ("story", "word")[int(rng.integers(2))]
        prompt = FORMS[kind].format(*rng.choice(TOPICS, 2))
        yield kind, prompt, max(1, round(factor * MEDIANS[kind] * float(rng.lognormal(0, 0.3))))


def first_model(out: Path) -> Path:
    """Trained on 400 calls of another seed."""
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train

    records = [
        CallRecord(f"{i}", "m", float(i), "ok", type=kind, prompt=prompt, prompt_group=prompt, output_tokens=tokens,
                   device="default", dispatched_s=float(i), finished_s=i + 0.5)
        for i, (kind, prompt, tokens) in enumerate(calls(400, seed=9))
    ]  # fmt: skip
    fit = FitConfig(epochs=4, members=4, left_out=1, landmarks=32, count_landmarks=16, hidden=16)
    train(records, out, TrainConfig(fit, plots=False))
    return out


@contextmanager
def trainer(records: Path, models: Path, first: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What the trainer's image runs."""
    command = [sys.executable, "-m", "swarmx.cli", "adapt", "--watch", str(records), "--models", str(models)]
    said = (records.parent / "trainer.log").open("wb")
    process = subprocess.Popen(
        [*command, "--model", str(first)], stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        said.close()


async def ask(r: Rig, kind: str, prompt: str, tokens: int) -> int:
    return (await r.post({"prompt": prompt, "tokens": tokens}, {"x-swarmx-type": kind})).status


def test_a_drift_brings_a_new_model_into_office_while_requests_go_on(tmp_path: Path) -> None:
    first, records, models = first_model(tmp_path / "first"), tmp_path / "records", tmp_path / "models"
    backends = [Backend("b1"), Backend("b2")]
    settings = settings_for(
        (b.address for b in backends),
        predictor={"kind": "local", "path": first, "budget_s": 1.0, "runs": "thread"},
        log={"directory": records, "prompt": "keep"},
        adaptation={"kind": "tail_loss", "models": str(models), "every_s": 0.2},
        scheduler={"preset": "push"},
    )

    async def run() -> None:
        adapting = Adapting.open(settings.adaptation, first)
        began = adapting.office.model
        async with rig(backends, picker=Picker(settings, adapting)) as r:
            statuses: list[int] = []
            async with asyncio.timeout(PATIENCE_S):
                seed = 0
                while not adapting.swaps:
                    seed += 1
                    batch = (ask(r, *call) for call in calls(16, seed, factor=4.0))
                    statuses += await asyncio.gather(*batch)
                    await asyncio.sleep(0.1 if len(statuses) < 350 else 0.6)  # while the trainer learns from them
            assert sum(adapting.alarms.values()) >= 1
            assert adapting.version == DirectoryRegistry(models).get("champion") != began.version
            tale = Call("x", "m", 0.0, prompt="Write a long story about tea and bees.", type="story")
            said = [m.predictor.predict([tale])[0].tokens.mean() for m in (began, adapting.office.model)]
            assert said[1] > 2 * said[0]  # it has learned that answers are four times as long
            statuses.append(await ask(r, "story", "Write a long story about chess and rivers.", 800))
            await until(lambda: len(r.records) == len(statuses))
            assert set(statuses) == {200} and r.records[-1].prediction_source == "neural"
            async with r.client.get(f"http://127.0.0.1:{r.picker.pages_port}/metrics") as page:
                assert "swarmx_picker_model_swaps 1.0" in await page.text()

    with trainer(records, models, first):
        asyncio.run(run())
    written = [line for path in records.glob("calls-*.jsonl") for line in path.read_text().splitlines()]
    assert len(written) > 300


def nightly_job(shared: Path, scratch: Path) -> None:
    """The commands of deploy/kubernetes/trainer, on these folders."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "trainer" / "trainer.yaml").read_text())
    (job,) = (d for d in documents if d["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    script = script.replace("/shared", str(shared)).replace("/scratch", str(scratch))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run([*container["command"], script], check=True, env=environment, capture_output=True)


def test_the_nightly_job_learns_from_the_records_and_the_picker_takes_its_model(tmp_path: Path) -> None:
    shared, scratch = tmp_path / "shared", tmp_path / "scratch"
    shared.mkdir()
    scratch.mkdir()
    first = first_model(shared / "model")
    backends = [Backend("b1"), Backend("b2")]
    settings = settings_for(
        (b.address for b in backends),
        predictor={"kind": "local", "path": first, "budget_s": 1.0},
        log={"directory": shared / "records", "prompt": "keep", "rotate_records": 100},
        scheduler={"preset": "push"},
    )

    async def run() -> None:
        async with rig(backends, picker=Picker(settings, load_predictor(first, True))) as r:
            forecaster = r.picker.forecaster
            assert forecaster is not None
            old = forecaster.predictor.version
            for batch in range(20):
                asked = (ask(r, *call) for call in calls(20, batch, factor=4.0))
                assert set(await asyncio.gather(*asked)) == {200}
            await until(lambda: len(r.records) == 400)
            assert r.records[-1].prediction_source == "neural"
            await asyncio.to_thread(nightly_job, shared, scratch)
            await until(lambda: forecaster.swaps == 1)
            assert forecaster.predictor.version != old
            assert await ask(r, "story", "Write a long story about chess and rivers.", 800) == 200
            await until(lambda: len(r.records) == 401)
            said = r.records[-1].predicted_tokens
            assert said is not None and np.mean(said) > 400  # its first model would say 200

    asyncio.run(run())

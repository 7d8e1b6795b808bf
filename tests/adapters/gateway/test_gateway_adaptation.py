"""A gateway that adapts: predictions of the registry's champion, records with embeddings, figures, a swap in flight."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from gateway_harness import Running, mocks, server_settings
from patience import until

from swarmx.adapt.example import examples_of
from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapters.adaptation import AdaptationSettings
from swarmx.adapters.gateway.gateway import Gateway, GatewaySettings
from swarmx.adapters.settings import LogSettings, PoolSettings, PredictorSettings
from swarmx.logs.many import read_logs
from swarmx.predict.bundle import read_manifest
from swarmx.predict.embed import TextEncoder
from swarmx.types import CallRecord


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two small models of different seeds."""
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train

    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("models")
    calls = [
        CallRecord(
            str(i), "mock", float(i), "ok", type=("list", "word")[i % 2], prompt=f"Say {i % 40} of {i % 2}",
            prompt_group=f"{i % 40}", output_tokens=int(rng.integers(5, 60)),
        )
        for i in range(200)
    ]  # fmt: skip
    for seed, name in enumerate(("first", "second")):
        fit = FitConfig(seed=seed, epochs=1, members=4, left_out=1, landmarks=16, count_landmarks=8, hidden=8)
        train(calls, place / name, TrainConfig(fit, plots=False))
    return place / "first", place / "second"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_champion_is_swapped_while_calls_come_and_records_hold_embeddings(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    registry = DirectoryRegistry(tmp_path / "models")
    first, second = (registry.add(model, {}) for model in models)
    registry.set("champion", first, {})
    async with mocks(2) as replicas, aiohttp.ClientSession() as http:
        gateway = Gateway(
            GatewaySettings(
                pools={
                    "mock": PoolSettings.model_validate({"replicas": [{"url": m.url, "slots": 4} for m in replicas]})
                },
                server=server_settings({}),
                predictor=PredictorSettings(kind="local", path=models[0], budget_s=5.0),
                log=LogSettings(directory=tmp_path / "log", prompt="embed", rotate_s=0.2),
                adaptation=AdaptationSettings(kind="tail_loss", models=str(tmp_path / "models"), every_s=0.1),
            )
        )
        await gateway.start()
        run = Running(gateway, replicas, http)
        try:
            # few enough for both models to be heard on credit: neither would earn its word
            answers = [await run.chat(f"List the main facts about bees {i}") for i in range(8)]
            assert {status for status, *_ in answers} == {200}
            registry.set("champion", second, {})
            await until(lambda: gateway.state.ended.adapting.version == second)
            more = await asyncio.gather(*(run.chat(f"Name a colour for tea {i}") for i in range(16)))
            assert {status for status, *_ in more} == {200}
            told = [gateway.state.receipts.get(headers["x-swarmx-decision"]) for _, _, headers in (answers[0], more[0])]
            assert [receipt.model_version for receipt in told if receipt] == [first, second]
            page = gateway.state.metrics.text().decode()
        finally:
            await run.openai.close()
            await gateway.stop()
    assert f'swarmx_model_info{{version="{second}"}} 1.0' in page
    assert "swarmx_model_swaps 1.0" in page
    assert 'swarmx_prediction_coverage{level="0.9"}' in page
    records = read_logs(tmp_path / "log")
    assert len(records) == 24
    assert {record.prompt for record in records} == {None}
    sha = read_manifest(models[0])["files"]["encoder.onnx"]
    examples = examples_of(records, TextEncoder.load(models[0]), sha, 0)
    assert all(example.can_teach for example in examples)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_model_that_is_trained_anew_takes_over_without_a_registry(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    here = tmp_path / "model"
    shutil.copytree(models[0], here)
    async with mocks(1) as replicas, aiohttp.ClientSession() as http:
        pool = PoolSettings.model_validate({"replicas": [{"url": replicas[0].url, "slots": 4}]})
        predictor = PredictorSettings(kind="local", path=here, budget_s=5.0)
        gateway = Gateway(GatewaySettings(pools={"mock": pool}, server=server_settings({}), predictor=predictor))
        await gateway.start()
        run = Running(gateway, replicas, http)
        try:
            assert (await run.chat("Name a bee"))[0] == 200
            assert gateway.state.predictor is not None
            before = gateway.state.predictor.predictor
            here.rename(tmp_path / "old")
            shutil.copytree(models[1], tmp_path / "new")
            (tmp_path / "new").rename(here)
            await until(lambda: gateway.state.predictor.predictor is not before)
            assert (await run.chat("Name another bee"))[0] == 200
            assert "swarmx_model_swaps 1.0" in gateway.state.metrics.text().decode()
        finally:
            await run.openai.close()
            await gateway.stop()

"""Serving processes correct their predictions, tell drift, and change the model between two batches or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from adapt_stream import stream

from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapters.adaptation import FIGURES, AdaptationSettings, Adapting
from swarmx.adapters.gateway.adapting import Embeds, embedding_of, show
from swarmx.adapters.gateway.metrics import Metrics
from swarmx.adapters.settings import LogSettings, PredictorSettings
from swarmx.config import parse_config
from swarmx.errors import BadInput
from swarmx.types import Call, CallRecord

ON = AdaptationSettings(kind="tail_loss")


def serve(adapting: Adapting, records: list[CallRecord]) -> list[tuple[float, float, str]]:
    """(median served, tokens, version) of each call, one after the other."""
    out = []
    for record in records:
        call = Call(record.call_id, record.model, record.arrival_s, record.prompt or "", type=record.type)
        said = adapting.predict([call])[0]
        out.append((float(said.tokens.at(0.5)), float(record.output_tokens), said.model_version))
        adapting.finished(record)
    return out


def test_predictions_are_corrected_within_tens_of_calls(first_model: Path) -> None:
    adapting = Adapting.open(ON, first_model)
    serve(adapting, stream(60, seed=1))
    served = serve(adapting, stream(200, seed=2, factor=2.0, first=60))[100:]
    ratio = np.median([np.log(tokens / median) for median, tokens, _ in served])
    assert abs(ratio) < 4 * 1.25 * 0.35 / 10  # a median of 100 logs of sd 0.35, 4 standard errors
    off = Adapting.open(AdaptationSettings(kind="tail_loss", calibrate=False), first_model)
    serve(off, stream(60, seed=1))
    plain = serve(off, stream(100, seed=2, factor=2.0, first=60))
    assert np.median([np.log(tokens / median) for median, tokens, _ in plain]) > 0.4


def test_a_new_champion_takes_office_and_a_half_written_one_does_not(
    first_model: Path, second_model: Path, tmp_path: Path
) -> None:
    registry = DirectoryRegistry(tmp_path)
    first = registry.add(first_model, {})
    registry.set("champion", first, {})
    adapting = Adapting.open(AdaptationSettings(kind="tail_loss", models=str(tmp_path)), second_model)
    assert adapting.version == first
    assert not adapting.look()
    second = registry.add(second_model, {})
    registry.set("champion", second, {})
    serve(adapting, stream(3))
    assert adapting.look()
    assert [version for *_, version in serve(adapting, stream(3, seed=1))] == [second] * 3
    assert adapting.office.monitor is not None  # it came with its reference
    (tmp_path / "champion").write_text(f"{first}\n")
    (tmp_path / "versions" / first / "heads.onnx").write_bytes(b"half")
    assert not adapting.look()
    (tmp_path / "champion").write_text("absent\n")
    assert not adapting.look()
    assert adapting.version == second
    assert (adapting.swaps, adapting.refused) == (1, 2)


def test_calls_that_were_asked_before_a_swap_do_not_count_for_the_new_model(
    first_model: Path, second_model: Path, tmp_path: Path
) -> None:
    registry = DirectoryRegistry(tmp_path)
    registry.set("champion", registry.add(first_model, {}), {})
    adapting = Adapting.open(AdaptationSettings(kind="tail_loss", models=str(tmp_path)), first_model)
    record = stream(1)[0]
    adapting.predict([Call(record.call_id, "m", 0.0, record.prompt or "", type=record.type)])
    registry.set("champion", registry.add(second_model, {}), {})
    assert adapting.look()
    adapting.finished(record)
    assert list(adapting.office.latest) == []


@pytest.mark.fault
def test_without_its_registry_a_server_begins_and_goes_on(first_model: Path, tmp_path: Path) -> None:
    adapting = Adapting.open(AdaptationSettings(kind="tail_loss", models=str(tmp_path / "models")), first_model)
    (tmp_path / "models" / "versions").rmdir()
    (tmp_path / "models").rmdir()
    assert not adapting.look()
    assert len(serve(adapting, stream(5))) == 5


def test_failed_and_unknown_calls_teach_nothing(first_model: Path) -> None:
    from dataclasses import replace

    adapting = Adapting.open(ON, first_model)
    record = stream(1)[0]
    assert adapting.finished(record) is None
    adapting.predict([Call(record.call_id, "m", 0.0, record.prompt or "")])
    assert adapting.finished(replace(record, status="timeout")) is None
    assert list(adapting.office.latest) == []


def test_the_metrics_page_shows_loss_coverage_and_version(first_model: Path) -> None:
    adapting, metrics = Adapting.open(ON, first_model), Metrics()
    show(metrics, adapting)
    serve(adapting, stream(40))
    page = metrics.text().decode()
    assert f'swarmx_model_info{{version="{adapting.version}"}} 1.0' in page
    assert 'swarmx_prediction_coverage{level="0.95"}' in page
    assert "swarmx_prediction_loss" in page
    assert adapting.figures().keys() == FIGURES.keys()


def test_embedded_records_hold_no_text_and_the_encoders_hash(first_model: Path) -> None:
    embeds = embedding_of(LogSettings(prompt="embed"), PredictorSettings(kind="local", path=first_model))
    assert isinstance(embeds, Embeds)
    record = embeds(stream(1)[0])
    assert record.prompt is None
    assert record.embedding is not None
    assert len(record.embedding) == 2 * embeds.encoder.width
    assert record.encoder_sha == embeds.sha
    with pytest.raises(BadInput, match="needs a predictor"):
        embedding_of(LogSettings(prompt="embed"), PredictorSettings())


def test_the_configuration_says_what_does_not_go_together(tmp_path: Path) -> None:
    pools = "model_pools: {m: {replicas: [{url: 'http://127.0.0.1:9'}]}}\n"
    local = "predictor: {kind: local, path: models}\n"
    good = parse_config(pools + local + "adaptation: {kind: tail_loss, models: reg}\n", base=tmp_path)
    assert good.adaptation.models == str(tmp_path / "reg")
    store = parse_config(pools + local + "adaptation: {kind: tail_loss, models: 'sqlite:///m.db'}\n", base=tmp_path)
    assert store.adaptation.models == "sqlite:///m.db"
    for text, said in (
        ("adaptation: {kind: tail_loss}\n", "needs a predictor of kind 'local'"),
        (local + "adaptation: {kind: tail_loss, trainer: process}\n", "needs models"),
        (local + "adaptation: {kind: tail_loss, trainer: process, models: reg}\n", "learns from log.directory"),
        (local + "adaptation: {kind: tail_loss, fasle_alarms: 1}\n", "unknown key"),
    ):
        with pytest.raises(BadInput, match=said):
            parse_config(pools + text)

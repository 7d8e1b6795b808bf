"""Online adaptation inside the gateway: which predictor runs, what its metrics show, who is started beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarmx.adapters.adaptation import FIGURES, AdaptationSettings, Adapting
from swarmx.adapters.gateway.metrics import Metrics, Rows
from swarmx.adapters.predicting import load_predictor
from swarmx.adapters.settings import LogSettings, PredictorSettings
from swarmx.errors import BadInput
from swarmx.predict.budget import Tiers
from swarmx.types import CallRecord


def predictor_of(
    predictor: PredictorSettings, adaptation: AdaptationSettings, metrics: Metrics
) -> tuple[Tiers | None, Adapting | None]:
    """The configured predictor, adapting where that is wanted. Raises BadInput when there is no usable model."""
    if predictor.kind != "local" or predictor.path is None:
        return None, None
    if adaptation.kind == "none":
        return load_predictor(predictor.path, predictor.own_process), None
    adapting = Adapting.open(adaptation, predictor.path, predictor.own_process)
    show(metrics, adapting)
    return adapting, adapting


def show(metrics: Metrics, adapting: Adapting) -> None:
    """Its figures on the metrics page, read when the page is."""
    for name, about in FIGURES.items():
        metrics.add_gauge(f"swarmx_{name}", about, (), _row(adapting, name))
    metrics.add_gauge(
        "swarmx_prediction_coverage", "Share of the latest calls no longer than this quantile as served", ("level",),
        lambda: [((level,), share) for level, share in adapting.coverage().items()],
    )  # fmt: skip
    metrics.add_gauge(
        "swarmx_drift_alarms_of", "Alarms of the drift monitor by group", ("type", "model", "device"),
        lambda: [(group, float(n)) for group, n in list(adapting.alarms.items())],
    )  # fmt: skip
    metrics.add_gauge(
        "swarmx_model_info", "1 for the model version in use", ("version",), lambda: [((adapting.version,), 1.0)]
    )


def _row(adapting: Adapting, name: str) -> Callable[[], Rows]:
    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        figures = adapting.figures()
        return [((), figures[name])] if name in figures else []

    return read


def embedding_of(log: LogSettings, predictor: PredictorSettings) -> Callable[[CallRecord], CallRecord] | None:
    """What the thread that writes records does to each: the prompt becomes its embedding where the log is to hold that.

    Raises BadInput when there is no encoder to do it with.
    """
    if log.prompt != "embed":
        return None
    if predictor.path is None:
        raise BadInput("log.prompt 'embed' needs a predictor with an encoder; give predictor.path")
    return Embeds(predictor.path)


class Embeds:
    """Turns a record's prompt into its embedding and a hash; loads the encoder of a model directory."""

    def __init__(self, directory: Path) -> None:
        from swarmx.predict.bundle import read_manifest
        from swarmx.predict.embed import TextEncoder

        files: dict[str, Any] = read_manifest(directory)["files"]
        if "encoder.onnx" not in files:
            raise BadInput(f"log.prompt 'embed': {directory} has no encoder; choose keep, hash or drop")
        self.sha = str(files["encoder.onnx"])
        self.encoder = TextEncoder.load(directory)

    def __call__(self, record: CallRecord) -> CallRecord:
        from swarmx.predict.features import features

        if not record.prompt:
            return record
        vector = self.encoder.of(features([record]))[0].astype("<f2").tobytes()
        return replace(record, prompt=None, embedding=vector, encoder_sha=self.sha)

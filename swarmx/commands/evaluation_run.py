"""The steps of an evaluation: read the log, train, fit engines, simulate, write."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import swarmx
from swarmx.commands.progress import reporting
from swarmx.errors import BadInput
from swarmx.files import check_directory, replacing
from swarmx.sim.report import Meta, Report, write_report
from swarmx.sim.report_html import write_html
from swarmx.sim.report_markdown import summary
from swarmx.sim.suites import DEMO, FULL, QUICK, Material, Plan, Suite, material_of, suite
from swarmx.sim.suites.evaluation import definitions, evaluate, versions
from swarmx.types import CallRecord

LOG_NAME = "execution_log.parquet"
QUICK_EPOCHS = 20
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. Without a log, the shipped one; without a model, one is trained on the log."""

    suites: tuple[str, ...]
    log: Path | None = None
    model: Path | None = None
    policies: tuple[str, ...] | None = None
    quick: bool = False
    seeds: int | None = None
    out: Path = Path("out")
    processes: int | None = None
    quiet: bool = False
    demo: bool = False

    @property
    def command(self) -> str:
        """What gives the same report again; where it is written and by how many processes does not matter."""
        if self.demo:
            return "swarmx demo" + (f" --seeds {self.seeds}" if self.seeds else "")
        parts = ["swarmx evaluate", f"--suite {','.join(self.suites)}"]
        parts += [f"--log {self.log}"] if self.log else []
        parts += [f"--model {self.model}"] if self.model else []
        parts += [f"--policy {','.join(self.policies)}"] if self.policies else []
        parts += ["--quick"] if self.quick else []
        parts += [f"--seeds {self.seeds}"] if self.seeds else []
        return " ".join(parts)


def run(request: Request) -> Report:
    """Carry it out and write report.json and report.html into `request.out`. Raises BadInput before any long work."""
    from swarmx.logs.many import read_logs
    from swarmx.sim.suites.predictions import calibration_of, unseen_predictions

    suites = [suite(name) for name in request.suites]
    plan = _plan(request)
    check_directory(request.out)
    if not any(one.needs_log for one in suites):
        return _written(_without_log(request, suites, plan), request)
    log = request.log or shipped_log()
    records = read_logs(log)
    with reporting(request.quiet) as progress:
        model = request.model or _train(records, log, request, progress)
        material = _material(log, records, unseen_predictions(records, model), "psc" in plan.policies)
        report = evaluate(
            material,
            suites,
            plan,
            _meta(request, plan, log, records),
            request.out / "cells",
            calibration_of(records, model),
            request.processes,
            lambda name, done, total: progress(name, done / total),
        )
    return _written(report, request)


def _without_log(request: Request, suites: Sequence[Suite], plan: Plan) -> Report:
    """Suites whose worlds are made up: no log is read and nothing is trained."""
    meta = Meta(
        list(plan.seeds), _git(), {"name": "made up, see the suites"}, versions(), definitions(plan), request.command,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    nothing = Material("none", (), {}, (), None, "")
    with reporting(request.quiet) as progress:
        return evaluate(
            nothing, suites, plan, meta, request.out / "cells", None, request.processes,
            lambda name, done, total: progress(name, done / total),
        )  # fmt: skip


def _written(report: Report, request: Request) -> Report:
    write_report(report, request.out / "report.json")
    write_html(report, request.out / "report.html")
    with replacing(request.out / "summary.md") as temporary:
        temporary.write_text(summary(report), encoding="utf-8")
    return report


def shipped_log() -> Path:
    """The log that comes with swarmx: inside the package when installed, beside it in a checkout."""
    package = Path(swarmx.__file__).parent
    for place in (package / "data" / LOG_NAME, package.parent / "data" / LOG_NAME):
        if place.is_file():
            return place
    raise BadInput(f"the shipped log data/{LOG_NAME} is not installed; give one with --log")


def _plan(request: Request) -> Plan:
    plan = DEMO if request.demo else QUICK if request.quick else FULL
    if request.seeds:
        plan = replace(plan, seeds=tuple(range(request.seeds)))
    return plan.only(request.policies) if request.policies else plan


def _train(records: Sequence[CallRecord], log: Path, request: Request, progress: Progress) -> Path:
    """A model trained on the log, from an earlier run where that was the same log, code and effort."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from swarmx.logs.many import checksum
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train
    from swarmx.sim.suites.run import code_checksum

    fit = FitConfig(epochs=QUICK_EPOCHS) if request.quick else FitConfig()
    key = hashlib.sha256(f"{checksum(log)} {fit} {code_checksum()}".encode()).hexdigest()[:12]
    model = request.out / "models" / key
    if not (model / "manifest.json").is_file():
        # one thread: the same bits on any machine, and a sixth of the work where other processes want the cores
        with threadpool_limits(1):
            train(records, model, TrainConfig(fit=fit, plots=False), progress)
    return model


def _material(
    log: Path, records: Sequence[CallRecord], trained: dict[str, swarmx.types.Prediction], means: bool
) -> Material:
    from swarmx.sim.suites.engines import recorded_cluster

    try:
        cluster = recorded_cluster(records)
    except BadInput:  # suites that need it say so themselves
        cluster = None
    return material_of(log.stem, records, trained, cluster, means)


def _meta(request: Request, plan: Plan, log: Path, records: Sequence[CallRecord]) -> Meta:
    from swarmx.logs.many import checksum

    workflows = len({record.workflow_id or record.call_id for record in records})
    data: dict[str, str | int | float] = {
        "name": log.name, "sha256": checksum(log), "calls": len(records), "workflows": workflows
    }  # fmt: skip
    return Meta(
        list(plan.seeds), _git(), data, versions(), definitions(plan), request.command,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _git() -> str:
    """The commit of a checkout, with -dirty when it was changed; "none" for an installed package."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=Path(swarmx.__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() if found.returncode == 0 else "none"

"""From material and suites to one report: what every front end (command line, notebook, benchmark) calls."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from swarmx.logs.workflows import RecordedWorkflow
from swarmx.sim.cluster import Cluster
from swarmx.sim.replay import fidelity
from swarmx.sim.report import Calibration, Fidelity, Figures, Level, Meta, Report
from swarmx.sim.suites.cells import Cell, Plan, Suite
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.run import run_cells
from swarmx.sim.suites.summary import LIMIT, curves_of, rows_of
from swarmx.sim.suites.worlds import SLO_FACTOR

Progress = Callable[[str, int, int], None]  # suite, cells done, cells in all
MOST_RUNS = 8  # more different beginnings of workflow ids than this are no names of runs
PACKAGES = ("swarmx-scheduler", "numpy", "numba", "onnxruntime", "torch")


def _silent(suite: str, done: int, total: int) -> None:
    pass


def evaluate(
    material: Material,
    suites: Sequence[Suite],
    plan: Plan,
    meta: Meta,
    cells_folder: Path | None = None,
    calibration: Calibration | None = None,
    processes: int | None = None,
    progress: Progress = _silent,
) -> Report:
    """Run every cell of the suites and sum them up.

    meta : with everything but the settings, which the suites add
    cells_folder : where outcomes are kept, so that a run that was stopped goes on; None keeps nothing
    Raises BadInput for a policy that no preset has, or when a suite cannot be built from the material.
    """
    settings: dict[str, float] = {}
    rows, curves = [], []
    for suite in suites:
        known = suite.settings(material)
        settings |= {f"{suite.name}/{key}": value for key, value in known.items()}
        cells = suite.cells(material, plan)
        outcomes = run_cells(suite, material, cells, cells_folder, processes, _count(suite, cells, progress))
        rows += rows_of(outcomes, _no_queue(known))
        curves += curves_of(outcomes)
    runs = fidelity_of(material) if any(s.name == "real_log" for s in suites) else []
    told = {**{f"suite {s.name}": s.about for s in suites}, **meta.definitions}
    full = replace(meta, settings={**meta.settings, **settings}, definitions=told)
    return Report(full, rows, Figures(curves, calibration, runs))


def _count(suite: Suite, cells: Sequence[Cell], progress: Progress) -> Callable[[str], None]:
    done = 0

    def one(title: str) -> None:
        nonlocal done
        done += 1
        progress(suite.name, done, len(cells))

    return one


def _no_queue(settings: Mapping[str, float]) -> dict[str, float]:
    ending = "/no_queue_p99_s"
    return {key.removesuffix(ending): value for key, value in settings.items() if key.endswith(ending)}


def fidelity_of(material: Material) -> list[Fidelity]:
    """The log replayed as it was, each call on its own replica; nothing when the log names no replicas.

    A log whose workflow ids are `run/...`, for a handful of runs, is also replayed and compared run by run.
    """
    if material.cluster is None:
        return []
    runs: dict[str, list[RecordedWorkflow]] = {}
    for workflow in material.recorded:
        runs.setdefault(workflow.id.split("/")[0], []).append(workflow)
    found = _replayed(material.name, material.recorded, material.cluster)
    if 1 < len(runs) <= MOST_RUNS:
        for name, workflows in runs.items():
            found += _replayed(name, workflows, material.cluster)
    return found


def _replayed(name: str, recorded: Sequence[RecordedWorkflow], cluster: Cluster) -> list[Fidelity]:
    levels: dict[str, Level] = {"call": "call", "workflow": "workflow"}
    keys = ("p50", "p95", "p99")
    return [
        Fidelity(
            name,
            levels[one.quantity],
            one.n,
            dict(zip(keys, one.recorded_s, strict=True)),
            dict(zip(keys, one.simulated_s, strict=True)),
        )
        for one in fidelity(recorded, cluster)[0]
        if one.quantity in levels
    ]


def versions() -> dict[str, str]:
    """Of everything that can change a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def definitions(plan: Plan) -> dict[str, str]:
    """What the words of the report mean."""
    return {
        "load": (
            "offered work / capacity. One-call-at-a-time replicas: capacity is their total speed. Batched engines: the "
            "token rate of each kind of replica with all slots or all KV memory in use, found by simulation"
        ),
        "P50, P95, P99": (
            f"quantiles over the calls or workflows of one seed ({plan.workflows} workflows), linear between "
            "observations; a row shows the geometric mean over seeds. Everything that arrived counts, from an empty "
            "start to the last end"
        ),
        "interval": (
            "95 % t interval of the mean log ratio of P99, paired by seed: every policy sees the same workflows and "
            "arrivals"
        ),
        "SLO": (
            f"{SLO_FACTOR:g} times the median latency without a queue of the same type of call (workflows: of the type "
            "of their first call)"
        ),
        "without a queue": "every call starts at once on the fastest replica and has it to itself",
        "max load": (
            f"largest load at which the workflow P99 is within {LIMIT:g} times the P99 without a queue, read off the "
            "sweep (log P99 linear between loads); 0 if the lowest load breaks it, the highest if none does. Field "
            "max_rate_at_slo"
        ),
        "arm": (
            "trained: a predictor that has not seen the template of the call's prompt; type: quantiles per call type, "
            "also from other templates; oracle: true lengths; none: no prediction, lengths seen so far in the run. "
            "Policies without an arm look at no prediction"
        ),
        "known to all": (
            "schedulers are told the relative speeds, slots and, where they use them, the service constants of the "
            "replicas; the recorded engines' constants are those fitted from the log"
        ),
        "priorities": (
            "all calls of a log are given one priority; classes would turn a percentile over all into one of the lowest"
        ),
        "fidelity": (
            "all recorded calls at their recorded arrival times on their recorded replicas, durations from the fitted "
            "constants"
        ),
    }

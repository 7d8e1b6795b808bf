"""Running cells: in several processes, each result on disk as soon as it is there, so that a long run can go on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from swarmx.files import replacing
from swarmx.sim.suites.cells import Cell, Suite
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome

Progress = Callable[[str], None]


def run_cells(
    suite: Suite,
    material: Material,
    cells: Sequence[Cell],
    folder: Path | None = None,
    processes: int | None = None,
    done: Progress = lambda title: None,
) -> dict[Cell, Outcome]:
    """Outcome of every cell; the same whatever the number of processes and whatever was found on disk.

    folder : where outcomes are kept as <hash>.json; the hash covers the cell, the material and the code, so that a
        changed policy is run again. None keeps nothing.
    done : called with the title of each cell that is finished
    """
    found = {cell: kept for cell in cells if (kept := _kept(folder, key_of(cell, material))) is not None}
    for cell in found:
        done(cell.title)
    left = [cell for cell in cells if cell not in found]
    for cell, outcome in _computed(suite, material, left, processes or os.cpu_count() or 1):
        if folder is not None:
            _keep(folder / f"{key_of(cell, material)}.json", cell, outcome)
        found[cell] = outcome
        done(cell.title)
    return {cell: found[cell] for cell in cells}


def key_of(cell: Cell, material: Material) -> str:
    """Name of the cell's outcome: a hash of all that it depends on."""
    text = json.dumps([asdict(cell), material.checksum, code_checksum()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def code_checksum() -> str:
    """Hash of the package's sources, apart from those that only show results."""
    root = Path(__file__).parents[2]
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(("commands/", "sim/report", "sim/suites/summary", "adapters/", "cli.py")):
            total.update(name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _computed(
    suite: Suite, material: Material, cells: Sequence[Cell], processes: int
) -> Iterable[tuple[Cell, Outcome]]:
    if processes == 1 or len(cells) < 2:
        yield from ((cell, suite.outcome(material, cell)) for cell in cells)
        return
    # spawn: a training run before this may have left threads behind, which a fork would copy locked
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _prepare, (suite, material)) as pool:
        waiting = {pool.submit(_run, cell): cell for cell in cells}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


_here: tuple[Suite, Material] | None = None  # set once in each worker process


def _prepare(suite: Suite, material: Material) -> None:
    global _here
    _here = suite, material


def _run(cell: Cell) -> Outcome:
    assert _here is not None
    suite, material = _here
    return suite.outcome(material, cell)


def _keep(path: Path, cell: Cell, outcome: Outcome) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"cell": asdict(cell), "outcome": asdict(outcome)}))


def _kept(folder: Path | None, key: str) -> Outcome | None:
    if folder is None or not (path := folder / f"{key}.json").exists():
        return None
    return TypeAdapter(Outcome).validate_python(json.loads(path.read_text())["outcome"])

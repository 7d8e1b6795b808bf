"""Retraining in a process of its own: one thread, low priority, bounded memory and time; it can be cancelled or killed.

The job's directory holds job.json and examples.npz; the worker writes model/ and result.json there, whole or not at
all. It ends by itself when its parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from swarmx.adapt.packing import pack, unpack
from swarmx.adapt.retrain import Job, describe, job_of, retrain, thinned
from swarmx.children import command_of
from swarmx.errors import BadInput
from swarmx.files import replacing

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
NICE = 19
ORPHAN_CHECK_S = 0.5
UNTOUCHED = 1.25


@dataclass(frozen=True, slots=True)
class Result:
    """directory : the new model, or None with the problem in one sentence; the rest is what it took"""

    directory: Path | None
    problem: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0


class Worker(Protocol):
    """Runs one job at a time, somewhere else."""

    def start(self, job: Job) -> None:
        """Begin. Raises RuntimeError while one runs, OSError when it cannot be started."""
        ...

    def poll(self) -> Result | None:
        """The result, once; None while the job runs and when there is none."""
        ...

    def cancel(self) -> None:
        """Stop the job, if one runs; it leaves nothing behind."""
        ...


@dataclass
class ProcessWorker:
    """A process per job, in `directory`, where what an earlier process left is removed.

    limit_s : of wall time, then it is killed
    memory_bytes : of resident memory; the kernel refuses private memory beyond `UNTOUCHED` times that, a part of which
        is never touched
    """

    directory: Path
    limit_s: float = 600.0
    memory_bytes: int = 1 << 30
    process: subprocess.Popen[bytes] | None = None
    _job: Path | None = None
    _started_s: float = 0.0

    def __post_init__(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, job: Job) -> None:
        if self.process is not None:
            raise RuntimeError("a retraining is running; cancel it first")
        self.directory.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="job-", dir=self.directory))
        np.savez(place / "examples.npz", weights=job.weights, **pack(job.examples))  # type: ignore[arg-type]
        about = describe(job) | {"memory_bytes": self.memory_bytes, "parent": os.getpid()}
        (place / "job.json").write_text(json.dumps(about))
        environment = os.environ | dict.fromkeys(THREADS, "1") | {"MALLOC_ARENA_MAX": "1"}
        with (place / "stderr").open("wb") as errors:
            self.process = subprocess.Popen(
                [*command_of("swarmx.adapt.worker"), str(place)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self._job, self._started_s = place, time.monotonic()

    def poll(self) -> Result | None:
        if self.process is None or self._job is None:
            return None
        code, spent = self.process.poll(), time.monotonic() - self._started_s
        if code is None and spent <= self.limit_s:
            return None
        if code is None:
            self.cancel()
            return Result(None, f"retraining took longer than {self.limit_s:g} s and was stopped", wall_s=spent)
        result = _result(self._job, code, spent)
        self.process = None
        return result

    def cancel(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
        if self._job is not None:
            shutil.rmtree(self._job, ignore_errors=True)
            self._job = None


def _result(job: Path, code: int, spent: float) -> Result:
    try:
        about: dict[str, Any] = json.loads((job / "result.json").read_text())
    except (OSError, ValueError):
        about = {}
    if code == 0 and not about.get("problem"):
        return Result(job / "model", "", about["cpu_s"], spent, about["peak_bytes"])
    if code < 0:
        return Result(None, f"the retraining process was killed by {signal.Signals(-code).name}", wall_s=spent)
    last = (job / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
    return Result(
        None, about.get("problem") or f"the retraining process failed: {' '.join(last) or code}", wall_s=spent
    )


@dataclass
class InlineWorker:
    """The same in this process, at once: for replays, where waiting for the result is the point."""

    directory: Path
    _result: Result | None = field(default=None)
    _count: int = 0

    def start(self, job: Job) -> None:
        self._count += 1
        out = self.directory / f"model-{self._count}"
        started, cpu = time.monotonic(), time.process_time()
        try:
            retrain(job, out)
            problem = ""
        except BadInput as found:
            problem = str(found)
        spent = time.process_time() - cpu, time.monotonic() - started
        self._result = Result(None if problem else out, problem, *spent, peak_bytes())

    def poll(self) -> Result | None:
        result, self._result = self._result, None
        return result

    def cancel(self) -> None:
        self._result = None


# ---- the process ----


def main() -> int:
    """The child's. Argument: the job's directory. 0 when a model was written, 1 when it could not be."""
    place = Path(sys.argv[1])
    about = json.loads((place / "job.json").read_text())
    _bound(int(about["memory_bytes"]))
    threading.Thread(target=_end_with, args=(int(about["parent"]),), daemon=True).start()
    with np.load(place / "examples.npz") as arrays:
        weights = arrays["weights"]
        job = thinned(job_of(about, unpack(arrays), weights))
    try:
        retrain(job, place / "model", release=True)
        problem = ""
    except BadInput as found:
        problem = str(found)
    except MemoryError:
        problem = f"retraining needs more than {int(about['memory_bytes']) >> 20} MB"
    with replacing(place / "result.json") as temporary:
        spent = {"cpu_s": time.process_time(), "peak_bytes": peak_bytes(), "problem": problem}
        temporary.write_text(json.dumps(spent))
    return 1 if problem else 0


def _bound(memory_bytes: int) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICE)  # whatever the priority of whoever started it
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # it does not preempt a router that wakes up
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = int(UNTOUCHED * memory_bytes)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _end_with(parent: int) -> None:
    """Nobody wants the result of an orphan."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os._exit(1)


def peak_bytes() -> int:
    """The most memory this process has held. Linux hands `ru_maxrss` down from whoever started the process, so the
    process's own high-water mark is read where there is one."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

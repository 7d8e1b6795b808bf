"""Retraining as a Ray task: `swarmx.adapt.worker.ProcessWorker`'s place on a cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swarmx.adapt.retrain import Job, retrain
from swarmx.adapt.worker import NICE, Result, peak_bytes
from swarmx.adapters.ray_training.connecting import cause_of
from swarmx.adapters.ray_training.luggage import pack, unpack
from swarmx.errors import BadInput


@dataclass
class RayWorker:
    """Implements `swarmx.adapt.worker.Worker`; a connected Ray is needed from `start` on.

    directory : on this machine, for the results; what an earlier run left there is removed
    limit_s : of wall time from `start`, waiting for a free CPU included; memory_bytes : that Ray reserves for the task
    The base model travels with the job and the new one comes back as bytes, so nodes share no file system.
    """

    directory: Path
    limit_s: float = 600.0
    memory_bytes: int = 1 << 30
    cpus: float = 1.0
    _task: Any = None
    _job: Path | None = None
    _started_s: float = 0.0

    def __post_init__(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, job: Job) -> None:
        if self._task is not None:
            raise RuntimeError("a retraining is running; cancel it first")
        import ray

        self.directory.mkdir(parents=True, exist_ok=True)
        self._job = Path(tempfile.mkdtemp(prefix="job-", dir=self.directory))
        task = ray.remote(num_cpus=self.cpus, memory=self.memory_bytes, max_retries=0, max_calls=1)(_retrain)
        self._started_s, self._task = time.monotonic(), task.remote(job, pack(job.base))

    def poll(self) -> Result | None:
        if self._task is None or self._job is None:
            return None
        import ray

        spent = time.monotonic() - self._started_s
        if not ray.wait([self._task], timeout=0)[0]:
            if spent <= self.limit_s:
                return None
            self.cancel()
            return Result(None, f"retraining took longer than {self.limit_s:g} s and was stopped", wall_s=spent)
        task, self._task = self._task, None
        try:
            found = ray.get(task)
        except Exception as problem:  # of Ray or of the task: the loop goes on with the old model
            last = (str(cause_of(problem)).strip() or type(problem).__name__).splitlines()[-1]
            return Result(None, f"the retraining task failed: {last}", wall_s=spent)
        if found["problem"]:
            return Result(None, found["problem"], found["cpu_s"], spent, found["peak_bytes"])
        model = unpack(found["model"], self._job / "model")
        return Result(model, "", found["cpu_s"], spent, found["peak_bytes"])

    def cancel(self) -> None:
        if self._task is not None:
            import ray

            with contextlib.suppress(Exception):  # it may have ended, or Ray may be gone
                ray.cancel(self._task, force=True)
            self._task = None
        if self._job is not None:
            shutil.rmtree(self._job, ignore_errors=True)
            self._job = None


def _retrain(job: Job, base: bytes) -> dict[str, Any]:
    """What the task does; max_calls=1 gives it a worker process of its own, so that its low priority harms nobody."""
    os.nice(NICE)
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        try:
            retrain(replace(job, base=unpack(base, here / "base")), here / "model")
            model, problem = pack(here / "model"), ""
        except BadInput as found:
            model, problem = b"", str(found)
        return {"model": model, "problem": problem, "cpu_s": time.process_time(), "peak_bytes": peak_bytes()}

"""The trainer: a process of its own that follows the records of running servers and publishes better models.

Servers need neither torch nor scikit-learn; they write records and follow the registry's champion. Killed at any point,
the trainer goes on from its last state at the next start, and the champion stays in office meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from swarmx.adapt.events import Event, LoopConfig
from swarmx.adapt.loop import AdaptationLoop
from swarmx.adapt.model import StoredModel
from swarmx.adapt.records import RecordDirectory
from swarmx.adapt.registry import DirectoryRegistry, Registry, RegistryError
from swarmx.adapt.state import restore, save
from swarmx.adapt.worker import Worker
from swarmx.errors import BadInput
from swarmx.files import check_directory, replacing

log = logging.getLogger(__name__)
STATE, STATUS, LOCK = "adapt-state.npz", "adapt-status.json", "adapt.lock"
SYNC_S, SAVE_S = 5.0, 60.0
PARENT_S = 0.5  # between two looks at whether the parent is there
BATCH = 64


@dataclass
class Trainer:
    """directory : for the state and the status; every_s : between two looks at the records"""

    loop: AdaptationLoop
    records: RecordDirectory
    directory: Path
    every_s: float = 1.0
    _told: Event | None = None  # the latest that was logged

    @classmethod
    def open(
        cls, records: Path, registry: Registry, worker: Worker, directory: Path, first: Path | None = None,
        config: LoopConfig | None = None,
    ) -> Trainer:  # fmt: skip
        """Resume from the state in `directory`, or begin; `first` becomes champion where the registry has none.

        Raises BadInput when there is no champion to begin with, or a state that cannot be read.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if isinstance(registry, DirectoryRegistry):
            registry.clean(time.time())
        try:
            version = registry.get("champion")
            if version is None:
                if first is None:
                    raise BadInput("the registry has no champion; name a model to begin with: --model DIR")
                version = registry.add(first, {"reason": "first"})
                registry.set("champion", version, {"reason": "first"})
            loop = AdaptationLoop(StoredModel.load(registry.path(version)), worker, registry, StoredModel.load, config)
        except RegistryError as problem:
            raise BadInput(str(problem)) from None
        followed = RecordDirectory(records).go_to(restore(loop, directory / STATE))
        return cls(loop, followed, directory, _told=loop.events[-1] if loop.events else None)

    def run(self, stop: threading.Event) -> None:
        """Follow the records until told to stop; then cancel the training, if one runs, and save."""
        synced = saved = -SYNC_S
        seen = -1
        while not stop.is_set():
            now = time.monotonic()
            if now - synced >= SYNC_S:
                self._sync()
                synced = now
            busy = self.step()
            news = self._tell()
            if news or (self.loop.seq != seen and now - saved >= SAVE_S):
                self.save()
                saved, seen = now, self.loop.seq
            if not busy:
                stop.wait(self.every_s)
        self.loop.worker.cancel()
        self.save()

    def step(self) -> bool:
        """Take in what is new; False when there was nothing."""
        fresh = self.records.read()
        for at in range(0, len(fresh), BATCH):
            self.loop.observe(fresh[at : at + BATCH])
        self.loop.poll()
        return bool(fresh)

    def save(self) -> None:
        """State and status, each replaced atomically; a full disk is told and otherwise ignored."""
        try:
            save(self.loop, self.directory / STATE, self.records.position)
            with replacing(self.directory / STATUS) as temporary:
                temporary.write_text(json.dumps(self.status(), indent=1) + "\n")
        except OSError as problem:
            log.warning("the trainer's state cannot be written: %s", problem)

    def status(self) -> dict[str, Any]:
        """For people and monitoring."""
        loop = self.loop
        rival = loop.rival
        return {
            "records": loop.seq,
            "champion": loop.champion.version,
            "retraining": loop.training,
            "rival": None if rival is None else {"version": rival.model.version, **rival.trial.report()},
            "reservoir": {"examples": len(loop.reservoir), "bytes": loop.reservoir.used_bytes},
            "events": [{"at": e.at, "kind": e.kind, "version": e.version, **e.detail} for e in list(loop.events)[-20:]],
        }

    def _tell(self) -> bool:
        """Log what has happened since the last time; whether anything has."""
        news = list(takewhile(lambda event: event is not self._told, reversed(self.loop.events)))[::-1]
        for event in news:
            about = " ".join(filter(None, event.detail.get("group", []))) or event.version
            log.info("call %d: %s %s %s", event.seq, event.kind, about, event.detail.get("reason", ""))
            self._told = event
        return bool(news)

    def _sync(self) -> None:
        try:
            self.loop.sync()
        except (RegistryError, BadInput) as problem:
            log.warning("the registry is not followed for now: %s", problem)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """One trainer per directory, or two would take turns at its state and its registry. The kernel lets go of the lock
    when the process ends, however it does. Raises BadInput when another one holds it."""
    check_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"another trainer follows records for {directory}; end it first") from None
        yield


def stop_with(parent: int, stop: threading.Event) -> None:
    """Set `stop` when that process, which started this one, is gone. Runs until then, in a thread of its own."""
    while os.getppid() == parent and not stop.wait(PARENT_S):
        pass
    stop.set()

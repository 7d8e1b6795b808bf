"""Predictions beside the event loop: calls that come while one batch is predicted form the next; the model can change.

The model directory is looked at every few seconds; when `swarmx train` or a trainer has put a new version there, it is
loaded in the background and takes over between two batches, without a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from swarmx.errors import BadInput
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)
MOST_WAITING = 256  # calls that wait for a prediction; more are routed without


class Predicts(Protocol):
    @property
    def version(self) -> str: ...

    def predict(self, calls: Sequence[Call]) -> list[Prediction]: ...


class Counts(Protocol):
    def add(self, name: str, value: str = "") -> None: ...


class Forecaster:
    """budget_s : a call whose prediction takes longer goes on without it"""

    def __init__(self, predictor: Predicts, budget_s: float, counters: Counts) -> None:
        self.predictor, self.budget_s, self.counters = predictor, budget_s, counters
        self.swaps = 0
        self._thread = ThreadPoolExecutor(1, "predict")
        self._waiting: list[tuple[Call, asyncio.Future[Prediction]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def __call__(self, call: Call) -> Prediction | None:
        """The prediction, or None when it is not there in time."""
        if len(self._waiting) >= MOST_WAITING:
            self.counters.add("late_predictions")
            return None
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._busy is None or self._busy.done():
            self._busy = asyncio.create_task(self._work())
        done, _ = await asyncio.wait((answer,), timeout=self.budget_s)
        if done and answer.exception() is None:
            return answer.result()
        answer.cancel()
        self.counters.add("late_predictions")
        return None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [(call, answer) for call, answer in self._waiting if not answer.done()]
            self._waiting.clear()
            if not batch:
                return
            try:
                found = await loop.run_in_executor(self._thread, self.predictor.predict, [call for call, _ in batch])
            except Exception as problem:  # a request is routed whatever a model does
                log.warning("prediction failed: %s", problem, exc_info=True)
                found = []
            for (_, answer), prediction in zip(batch, found, strict=False):
                if not answer.done():
                    answer.set_result(prediction)

    async def watch(self, directory: Path, load: Callable[[Path], Predicts], every_s: float = 5.0) -> None:
        """Take over new versions of the model as they appear; one that cannot be loaded changes nothing."""
        seen = stamp(directory)
        while True:
            await asyncio.sleep(every_s)
            if (now := stamp(directory)) == seen or now is None:
                continue
            seen = now
            try:
                self.predictor = await asyncio.to_thread(load, directory)
                self.swaps += 1
                log.info("model version %s is in use", self.predictor.version)
            except (BadInput, OSError, ValueError) as problem:
                log.warning("the new model is not used: %s", problem)


def stamp(directory: Path) -> tuple[int, int] | None:
    """Changes whenever another model is put there; None while there is none."""
    try:
        about = (directory / "manifest.json").stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_ino

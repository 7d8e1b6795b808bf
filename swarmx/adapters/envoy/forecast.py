"""Predictions beside the event loop: calls that come while one batch is predicted form the next; the model can change.

What the network cannot read within the budget gets the quantiles of its type, from the same model, and hears of the
network's answer if that comes while the call is still held. The model directory is looked at every few seconds; when
`swarmx train` or a trainer has put a new version there, it is loaded in the background and takes over between two
batches, without a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from swarmx.errors import BadInput
from swarmx.predict.budget import Budgeted, Tiers
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)
MOST_WAITING = 256  # calls that wait for a prediction; more go on with that of their type
LEAST_S = 1e-4  # budget of a batch, however little a call may wait
Late = Callable[[Prediction], None]


class Predicts(Tiers, Protocol):
    """A predictor with a version."""

    @property
    def version(self) -> str: ...


class Counts(Protocol):
    def add(self, name: str, value: str = "") -> None: ...


class Forecaster:
    """Runs a predictor in one thread. One that fails or hangs costs each call its budget and no more.

    budget_s : a call waits for its prediction no longer
    """

    def __init__(self, predictor: Predicts, budget_s: float, counters: Counts) -> None:
        self.budget_s, self.counters = budget_s, counters
        self.swaps = 0
        self._thread = ThreadPoolExecutor(1, "predict")
        self._waiting: list[tuple[Call, asyncio.Future[Prediction]]] = []
        self._busy: asyncio.Task[None] | None = None
        self._take(predictor)

    async def __call__(self, call: Call, late: Late | None = None) -> Prediction | None:
        """The prediction, or that of the call's type when it is not there in time; None where there is not even that.

        late : gets the prediction that comes after its time
        """
        if len(self._waiting) < MOST_WAITING:
            answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
            self._waiting.append((call, answer))
            if self._busy is None or self._busy.done():
                self._busy = asyncio.create_task(self._work())
            done, _ = await asyncio.wait((answer,), timeout=self.budget_s)
            if done and not answer.cancelled():
                return answer.result()
            if late is None:
                answer.cancel()
            else:
                answer.add_done_callback(lambda a: None if a.cancelled() else late(a.result()))
        self.counters.add("late_predictions")
        return self._by_type(call)

    def _by_type(self, call: Call) -> Prediction | None:
        try:
            return self.predictor.fallback_for([call])[0]
        except Exception as problem:  # a request is routed whatever a model does
            log.warning("no prediction by type: %s", type(problem).__name__)
            return None

    def _take(self, predictor: Predicts) -> None:
        self.predictor = predictor
        self._timed = Budgeted(predictor, max(self.budget_s, LEAST_S))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [(call, answer) for call, answer in self._waiting if not answer.done()]
            self._waiting.clear()
            if not batch:
                return
            timed, found = self._timed, list[Prediction]()
            before = timed.late
            try:
                found = await loop.run_in_executor(self._thread, timed.predict, [call for call, _ in batch])
            except Exception as problem:
                log.warning("prediction failed: %s", type(problem).__name__, exc_info=True)
            for _ in range(timed.late - before):  # by type, for want of time
                self.counters.add("late_predictions")
            for i, (_, answer) in enumerate(batch):
                if not answer.done():
                    answer.set_result(found[i]) if i < len(found) else answer.cancel()

    async def watch(self, directory: Path, load: Callable[[Path], Predicts], every_s: float = 5.0) -> None:
        """Take over new versions of the model as they appear; one that cannot be loaded changes nothing."""
        seen = stamp(directory)
        while True:
            await asyncio.sleep(every_s)
            if (now := stamp(directory)) == seen or now is None:
                continue
            seen = now
            try:
                self._take(await asyncio.to_thread(load, directory))
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

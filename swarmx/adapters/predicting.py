"""Predictions beside the event loop: one thread, a time budget per call, something that always answers.

Calls that come while one batch is predicted form the next. What the network cannot read within the budget gets the
quantiles of its type, from the same model, and hears of the network's answer if that comes while the call still waits.
When `swarmx train` or a trainer has put a new version into the model directory, it is loaded in the background and
takes over between two batches.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swarmx.errors import BadInput
from swarmx.predict.budget import Budgeted, Tiers
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)
JOIN_S = 1.0  # how long the end of the process waits for it
MOST_ASKED = 512  # calls that wait for the thread; more go on with the quantiles of their type
Deliver = Callable[[Prediction], None]


class Predicts(Tiers, Protocol):
    """A predictor with a version."""

    @property
    def version(self) -> str: ...


Loads = Callable[[Path, bool], Predicts]  # of a directory, in a process of its own or not


@dataclass(frozen=True, slots=True)
class Told:
    """Who hears of what happens. late : a call went on without the network's answer; by_type : so many of a batch were
    left to their type for want of time; took : seconds from asking to answer, of each call"""

    late: Callable[[], None]
    by_type: Callable[[int], None]
    took: Callable[[float], None] = lambda seconds: None

    @classmethod
    def counted(cls, add: Callable[[str], None]) -> Told:
        """Both as "late_predictions" of counters."""

        def by_type(calls: int) -> None:
            for _ in range(calls):
                add("late_predictions")

        return cls(lambda: add("late_predictions"), by_type)


@dataclass(slots=True, eq=False)
class _Asked:
    call: Call
    answer: asyncio.Future[Prediction]
    since_s: float


class Forecaster:
    """Runs a predictor in one thread. One that fails or hangs costs each call its budget and no more.

    budget_s : a call waits for its prediction no longer; 0: none waits, and predictions come when they come
    predictor : the one in use; swaps : models that have taken over
    """

    def __init__(self, predictor: Tiers, budget_s: float, told: Told) -> None:
        self.budget_s, self.told, self.swaps = budget_s, told, 0
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.take(predictor)

    def take(self, predictor: Tiers) -> None:
        """Use this one from the next batch on."""
        self.predictor = predictor
        self.timed = Budgeted(predictor, self.budget_s) if self.budget_s > 0 else None

    async def __call__(self, call: Call, late: Deliver | None = None) -> Prediction | None:
        """The prediction, or that of the call's type when it is not there in time; None where there is not even that,
        or where no call waits.

        late : gets the prediction that comes after its time
        """
        if self._asked.qsize() >= MOST_ASKED:
            self.told.late()
            return self._by_type(call)
        asked = _Asked(call, asyncio.get_running_loop().create_future(), time.monotonic())
        self._ask(asked)
        if self.budget_s > 0:
            done, _ = await asyncio.wait((asked.answer,), timeout=self.budget_s)
            if done and not asked.answer.cancelled():
                return asked.answer.result()
            self.told.late()
        if late is None:
            asked.answer.cancel()
        else:
            asked.answer.add_done_callback(lambda answer: None if answer.cancelled() else late(answer.result()))
        return self._by_type(call) if self.budget_s > 0 else None

    def _ask(self, asked: _Asked) -> None:
        if self._thread is None:  # a daemon: a predictor that hangs does not keep the process
            self._thread = threading.Thread(target=self._run, name="swarmx-predictor", daemon=True)
            self._thread.start()
        self._asked.put(asked)

    def close(self) -> None:
        """End the thread, unless it hangs; what it was asked before stays without an answer."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._thread is None or not self._thread.is_alive():
            close(self.predictor)

    def _by_type(self, call: Call) -> Prediction | None:
        try:
            return self.predictor.fallback_for([call])[0]
        except Exception as problem:  # a call goes on whatever a model does
            log.warning("no prediction by type: %s", type(problem).__name__, exc_info=True)
            return None

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            found = [self._asked.get()]
            while not self._asked.empty():
                found.append(self._asked.get())
            batch = [asked for asked in found if asked is not None]
            if len(batch) < len(found):
                return
            batch = [asked for asked in batch if not asked.answer.done()]
            if batch and not self._answer(batch):
                return

    def _answer(self, batch: list[_Asked]) -> bool:
        """Whether there is anybody left to answer."""
        timed, predictions, unread = self.timed, list[Prediction](), 0
        before = 0 if timed is None else timed.late
        try:
            predictions = (timed or self.predictor).predict([asked.call for asked in batch])
            unread = 0 if timed is None else timed.late - before
        except Exception as problem:  # whatever a model can raise, calls go on without it
            log.warning("prediction failed: %s", type(problem).__name__, exc_info=True)
        try:
            batch[0].answer.get_loop().call_soon_threadsafe(self._settle, batch, predictions, unread)
        except RuntimeError:  # the loop has closed
            return False
        return True

    def _settle(self, batch: Sequence[_Asked], predictions: Sequence[Prediction], unread: int) -> None:
        now = time.monotonic()
        if unread:
            self.told.by_type(unread)
        for i, asked in enumerate(batch):
            self.told.took(now - asked.since_s)
            if asked.answer.done():
                continue
            if i < len(predictions):
                asked.answer.set_result(predictions[i])
            else:
                asked.answer.cancel()

    # ---- new models ----

    async def watch(
        self, directory: Path, own_process: bool = False, load: Loads | None = None, every_s: float = 5.0
    ) -> None:
        """Take over new versions of the model as they appear; one that cannot be loaded changes nothing."""
        load, seen = load or load_predictor, stamp(directory)
        while True:
            await asyncio.sleep(every_s)
            if (now := stamp(directory)) == seen or now is None:
                continue
            seen = now
            try:
                fresh = await asyncio.to_thread(load, directory, own_process)
            except (BadInput, OSError, ValueError) as problem:
                log.warning("the new model is not used: %s", problem)
                continue
            old = self.predictor
            self.take(fresh)
            await asyncio.to_thread(close, old)
            self.swaps += 1
            log.info("model version %s is in use", fresh.version)


def stamp(directory: Path) -> tuple[int, int] | None:
    """Changes whenever another model is put there; None while there is none."""
    try:
        about = (directory / "manifest.json").stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_ino


def load_predictor(directory: Path, own_process: bool = False) -> Predicts:
    """The predictor of a model directory. Raises BadInput when it is unusable."""
    from swarmx.adapters.predictor_process import PredictorProcess
    from swarmx.predict.runtime import Predictor

    return PredictorProcess.load(directory) if own_process else Predictor.load(directory)


def close(predictor: object) -> None:
    """End what a predictor has started, where it has."""
    if callable(ending := getattr(predictor, "close", None)):
        ending()

"""Predictions beside the event loop: one worker thread, a time budget per call, and something that always answers.

What the network cannot read within the budget gets the quantiles of its type, from the same model; a call that the
network was too late for hears of its answer while it still waits in the queue.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from swarmx.adapters.gateway.metrics import Metrics
from swarmx.predict.budget import Budgeted, Tiers
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)
BATCH = 16
MAX_ASKED = 512  # calls waiting for the predictor; more go without a prediction


Deliver = Callable[[Prediction], None]


class PredictionThread:
    """Runs a predictor in one thread. A predictor that fails or hangs costs each call its budget and no more.

    budget_s : a call is held for its prediction no longer; 0 holds none, and predictions come when they come
    """

    def __init__(self, predictor: Tiers, budget_s: float, metrics: Metrics) -> None:
        self.predictor = predictor
        self.budget_s = budget_s
        self.timed = Budgeted(predictor, budget_s) if budget_s > 0 else None
        self.metrics = metrics
        self._asked: queue.SimpleQueue[tuple[Call, asyncio.Future[Prediction], float] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="swarmx-predictor", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        self._asked.put(None)

    async def ask(self, call: Call, late: Deliver) -> Prediction | None:
        """The prediction, or that of the call's type when it does not come within the budget.

        Then `late` gets it when it comes. None where there is not even that, or where no budget was given.
        """
        if self._loop is None or self._asked.qsize() > MAX_ASKED or not self._thread.is_alive():
            return self._by_type(call)
        future: asyncio.Future[Prediction] = self._loop.create_future()
        self._asked.put((call, future, time.monotonic()))
        if self.budget_s > 0:
            done, _ = await asyncio.wait([future], timeout=self.budget_s)
            if done:
                return self._by_type(call) if future.cancelled() else future.result()
            self.metrics.late_predictions.inc()
        future.add_done_callback(lambda f: None if f.cancelled() else late(f.result()))
        return self._by_type(call) if self.budget_s > 0 else None

    def _by_type(self, call: Call) -> Prediction | None:
        try:
            return self.predictor.fallback_for([call])[0]
        except Exception:  # a call goes on whatever a model does
            log.exception("no prediction by type")
            return None

    # ---- the worker thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (first := self._asked.get()) is not None:
            batch = [first]
            while len(batch) < BATCH:
                try:
                    item = self._asked.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    return
                batch.append(item)
            self._answer(batch)

    def _answer(self, batch: list[tuple[Call, asyncio.Future[Prediction], float]]) -> None:
        assert self._loop is not None
        try:
            predictions: Sequence[Prediction | None] = self._predict([call for call, _, _ in batch])
        except Exception:  # whatever a model can raise, calls go on without it
            log.exception("the predictor failed")
            predictions = [None] * len(batch)
        now = time.monotonic()
        for (_, future, asked_s), prediction in zip(batch, predictions, strict=True):
            self.metrics.predict_s.observe(now - asked_s)
            try:
                self._loop.call_soon_threadsafe(_settle, future, prediction)
            except RuntimeError:  # the loop has closed
                return

    def _predict(self, calls: Sequence[Call]) -> list[Prediction]:
        if self.timed is None:
            return self.predictor.predict(calls)
        before = self.timed.late
        predictions = self.timed.predict(calls)
        self.metrics.by_type.inc(self.timed.late - before)
        return predictions


def _settle(future: asyncio.Future[Prediction], prediction: Prediction | None) -> None:
    if future.done():
        return
    if prediction is None:
        future.cancel()
    else:
        future.set_result(prediction)


def load_predictor(path: Path) -> Tiers:
    """A trained model. Raises BadInput when the directory holds none."""
    from swarmx.predict.runtime import Predictor

    return Predictor.load(path)

"""A predictor that keeps to a time budget: as many calls as fit are read by the network, the rest by their type."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from swarmx.predict.runtime import Predictor
from swarmx.types import Call, Prediction

MEMORY = 0.2  # weight of the newest batch in the running cost of a call
SAFETY = 1.25  # by which a batch may cost more than the running cost says
FIRST_S = 2e-3  # cost of a call before any has been seen


class Tiers(Protocol):
    """What is needed of a predictor: the network's answer, and the one that needs no time."""

    def predict(self, calls: Sequence[Call]) -> list[Prediction]: ...

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]: ...


class Budgeted:
    """Answers a batch of waiting calls within `budget_s`, in the order given: first come, best served.

    A batch is as large as the running cost of a call lets fit into what is left; the calls that do not fit get the
    fallback, and their predictions say so (`source`). One call is always tried, so a cost that was high once is found
    to be low again. A single call is not interrupted: who must not wait for a hanging library runs this in a thread.

    clock : seconds; late : calls so far that got the fallback
    """

    def __init__(self, predictor: Tiers, budget_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        if not budget_s > 0:
            raise ValueError(f"a time budget is positive, got {budget_s}")
        self.predictor, self.budget_s, self.clock = predictor, budget_s, clock
        self.call_s = FIRST_S
        self.late = 0

    @classmethod
    def load(cls, directory: str | Path, budget_s: float, threads: int = 1, cache_bytes: int = 32 << 20) -> Budgeted:
        """The predictor of a model directory, which keeps to the budget; `threads` and `cache_bytes` as it has them.

        Raises BadInput when the directory holds no whole model, ValueError when the budget is not positive.
        """
        return cls(Predictor.load(directory, threads, cache_bytes), budget_s)

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        """The fallback tier for every call, from any thread and at once: for who can wait no longer for `predict`."""
        return self.predictor.fallback_for(calls)

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        """One prediction per call, whatever the calls hold."""
        began = self.clock()
        out: list[Prediction] = []
        while len(out) < len(calls):
            now = self.clock()
            fits = int((began + self.budget_s - now) / (self.call_s * SAFETY))
            if fits < 1 and out:
                break
            batch = calls[len(out) : len(out) + max(fits, 1)]
            out += self.predictor.predict(batch)
            self.call_s += MEMORY * ((self.clock() - now) / len(batch) - self.call_s)
        rest = calls[len(out) :]
        self.late += len(rest)
        return out + self.predictor.fallback_for(rest) if rest else out

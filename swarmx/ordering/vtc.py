"""Virtual token counter: least served lane first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from swarmx.ordering.accounts import Accounts
from swarmx.ordering.contract import Asked, LaneOf, lane_of
from swarmx.types import Call
from swarmx.waiting import Waiting


class Vtc:
    """The lane that has been served least tokens (prompt_weight * prompt + output_weight * output) goes first.

    It needs no prediction: the prompt is charged at the start, output tokens as they are reported (at the latest when
    the call ends). A lane that comes back is lifted to the least counter of those waiting.
    Sheng et al. (OSDI 2024), Fairness in Serving Large Language Models; weights 1 and 2 as there.
    """

    def __init__(
        self,
        prompt_weight: float = 1.0,
        output_weight: float = 2.0,
        weights: Mapping[str, float] | None = None,
        per: LaneOf = "tenant",
    ) -> None:
        self.prompt_weight = prompt_weight
        self.output_weight = output_weight
        self.weights = dict(weights or {})
        self.per = per
        self._counters = Accounts()
        self._seen: dict[str, float] = {}  # call in flight -> output tokens charged

    def key(self, asked: Asked) -> float:
        return asked.call.arrival_s

    def lane(self, call: Call) -> str:
        return lane_of(call, self.per)

    def score(self, lane: str) -> float:
        return self._counters[lane]

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score + self.prompt_weight * waiting.call.prompt_tokens / self.weights.get(lane, 1.0)

    def opened(self, lane: str) -> None:
        self._counters.open(lane)

    def closed(self, lane: str) -> None:
        self._counters.close(lane)

    def touched(self) -> Collection[str]:
        return self._counters.touched()

    def started(self, waiting: Waiting, now: float) -> None:
        self._seen[waiting.call.id] = 0.0
        self._charge(waiting, self.prompt_weight * waiting.call.prompt_tokens)

    def progressed(self, waiting: Waiting, tokens: float, now: float) -> None:
        before = self._seen.get(waiting.call.id)
        if before is not None and tokens > before:
            self._seen[waiting.call.id] = tokens
            self._charge(waiting, self.output_weight * (tokens - before))

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        self.progressed(waiting, tokens, now)
        self._seen.pop(waiting.call.id, None)

    def _charge(self, waiting: Waiting, amount: float) -> None:
        lane = self.lane(waiting.call)
        self._counters.charge(lane, amount / self.weights.get(lane, 1.0))

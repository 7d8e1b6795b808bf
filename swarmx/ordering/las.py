"""Least attained service of a program first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from swarmx.ordering.contract import Asked, LaneOf, lane_of
from swarmx.types import Call
from swarmx.waiting import Waiting

MAX_LANES = 100_000  # programs whose service is remembered


class Attained:
    """Tokens served per lane so far, longest unused lane forgotten first; charged as they are reported."""

    def __init__(self, limit: int = MAX_LANES) -> None:
        self.limit = limit
        self._served: OrderedDict[str, float] = OrderedDict()
        self._seen: dict[str, float] = {}
        self.touched: set[str] = set()

    def __getitem__(self, lane: str) -> float:
        return self._served.get(lane, 0.0)

    def start(self, lane: str, call: Call) -> None:
        self._seen[call.id] = 0.0
        self._add(lane, float(call.prompt_tokens))

    def progress(self, lane: str, call: Call, tokens: float) -> None:
        before = self._seen.get(call.id)
        if before is not None and tokens > before:
            self._seen[call.id] = tokens
            self._add(lane, tokens - before)

    def stop(self, lane: str, call: Call, tokens: float) -> None:
        self.progress(lane, call, tokens)
        self._seen.pop(call.id, None)

    def _add(self, lane: str, tokens: float) -> None:
        self._served[lane] = self[lane] + tokens
        self._served.move_to_end(lane)
        self.touched.add(lane)
        if len(self._served) > self.limit:
            self._served.popitem(last=False)


class Las:
    """The program (workflow) whose calls have received the fewest tokens so far goes first; ties by arrival.

    Needs no prediction. Good where sizes are heavy-tailed; a giant waits for all younger programs until each has had as
    much as it, which only the starvation tier bounds. Luo et al. (2025), Autellix: program-level attained service.
    """

    def __init__(self, per: LaneOf = "workflow") -> None:
        self.per = per
        self._attained = Attained()

    def key(self, asked: Asked) -> float:
        return asked.call.workflow_start_s

    def lane(self, call: Call) -> str:
        return lane_of(call, self.per)

    def score(self, lane: str) -> float:
        return self._attained[lane]

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score + waiting.call.prompt_tokens

    def opened(self, lane: str) -> None:
        """Nothing is owed for time spent away, and nothing forgiven."""

    def closed(self, lane: str) -> None:
        """The service attained is kept."""

    def touched(self) -> Collection[str]:
        found, self._attained.touched = self._attained.touched, set()
        return found

    def started(self, waiting: Waiting, now: float) -> None:
        self._attained.start(self.lane(waiting.call), waiting.call)

    def progressed(self, waiting: Waiting, tokens: float, now: float) -> None:
        self._attained.progress(self.lane(waiting.call), waiting.call, tokens)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        self._attained.stop(self.lane(waiting.call), waiting.call, tokens)

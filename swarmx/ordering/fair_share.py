"""Weighted fair shares by stride, with floors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from swarmx.ordering.accounts import Accounts
from swarmx.ordering.contract import Asked, LaneOf, lane_of
from swarmx.types import Call
from swarmx.waiting import Waiting

Charge = Literal["calls", "tokens", "work"]
Bill = tuple[str, float]


class FairShare:
    """The lane with the least charge per weight goes first; a newcomer starts at the present virtual time.

    weights : lane -> weight, others 1
    floors : lane -> share of all that is charged that it gets while it has calls waiting, whatever its class
    charge : what a start costs: "calls" 1, "tokens" prompt + output, "work" the expected seconds; expected at the
        start, settled with what was produced when the call ends

    Between lanes with calls waiting all the time, charges per weight differ by at most one largest call each (the bound
    of start-time fair queueing, Goyal et al. 1996): in any window a lane of weight w gets at least its share of the
    starts less one. Floors: the charge owed to a lane with waiting calls never exceeds floor * total since it began to
    wait by more than one largest call, if the floors add up to less than 1 and a replica can take its calls.
    Raises ValueError for a weight that is not positive or floors that add up to 1 or more.
    Waldspurger and Weihl (1995), Stride Scheduling.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        floors: Mapping[str, float] | None = None,
        charge: Charge = "tokens",
        per: LaneOf = "tenant",
    ) -> None:
        self.weights = dict(weights or {})
        self.floors = dict(floors or {})
        self.charge = charge
        self.per = per
        if any(not w > 0 for w in self.weights.values()):
            raise ValueError(f"weights must be positive, got {self.weights}")
        if any(f < 0 for f in self.floors.values()) or sum(self.floors.values()) >= 1:
            raise ValueError(f"floors must not be negative and must add up to less than 1, got {self.floors}")
        self._passes = Accounts()
        self._bills: dict[str, Bill] = {}  # call in flight -> lane, charge
        self._work: dict[str, float] = {}  # waiting call -> its seconds
        self._total = 0.0
        self._got: dict[str, float] = dict.fromkeys(self.floors, 0.0)
        self._since: dict[str, tuple[float, float]] = {}  # lane with a floor that waits -> total, got at its begin

    def key(self, asked: Asked) -> float:
        return asked.call.arrival_s

    def lane(self, call: Call) -> str:
        return lane_of(call, self.per)

    def score(self, lane: str) -> float:
        return self._passes[lane]

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score + self._cost(waiting) / self.weights.get(lane, 1.0)

    def owed(self, lane: str) -> bool:
        """Whether the lane has got less than its floor since it began to wait."""
        begin = self._since.get(lane)
        if begin is None:
            return False
        return self._got[lane] - begin[1] < self.floors[lane] * (self._total - begin[0])

    def opened(self, lane: str) -> None:
        self._passes.open(lane)
        if lane in self.floors:
            self._since[lane] = (self._total, self._got[lane])

    def closed(self, lane: str) -> None:
        self._passes.close(lane)
        self._since.pop(lane, None)

    def touched(self) -> Collection[str]:
        return self._passes.touched() | set(self._since)

    def arrived(self, asked: Asked) -> None:
        if self.charge == "work":
            self._work[asked.call.id] = asked.work_s

    def withdrawn(self, waiting: Waiting, now: float) -> None:
        self._work.pop(waiting.call.id, None)

    def started(self, waiting: Waiting, now: float) -> None:
        lane, cost = self.lane(waiting.call), self._cost(waiting)
        self._bills[waiting.call.id] = lane, cost
        self._add(lane, cost)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        lane, charged = self._bills.pop(waiting.call.id, (self.lane(waiting.call), 0.0))
        self._add(lane, self._served(waiting, tokens, over) - charged)
        if over:
            self._work.pop(waiting.call.id, None)

    def _add(self, lane: str, cost: float) -> None:
        self._total += cost
        if lane in self._got:
            self._got[lane] += cost
        self._passes.charge(lane, cost / self.weights.get(lane, 1.0))

    def _cost(self, waiting: Waiting) -> float:
        if self.charge == "calls":
            return 1.0
        if self.charge == "work":
            return self._work.get(waiting.call.id, waiting.lengths.mean)
        return waiting.call.prompt_tokens + waiting.lengths.mean

    def _served(self, waiting: Waiting, tokens: float, over: bool) -> float:
        if self.charge == "calls":
            return float(over)
        if self.charge == "work":
            return self._cost(waiting) * tokens / max(waiting.lengths.mean, 1e-9)
        return waiting.call.prompt_tokens + tokens

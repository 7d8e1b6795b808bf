"""Tenants or agents in turn."""

from __future__ import annotations

from collections.abc import Collection

from swarmx.ordering.accounts import Accounts
from swarmx.ordering.contract import Asked, LaneOf, lane_of
from swarmx.types import Call
from swarmx.waiting import Waiting


class RoundRobin:
    """One call of each lane per round; a lane is an agent (workflow) or a tenant.

    A lane that comes back joins the present round. While two lanes both have calls waiting, their numbers of starts
    differ by at most one, on replicas that could take either.
    """

    def __init__(self, per: LaneOf = "workflow") -> None:
        self.per = per
        self._rounds = Accounts()

    def key(self, asked: Asked) -> float:
        return asked.call.arrival_s

    def lane(self, call: Call) -> str:
        return lane_of(call, self.per)

    def score(self, lane: str) -> float:
        return self._rounds[lane]

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        return score + 1.0

    def opened(self, lane: str) -> None:
        self._rounds.open(lane)

    def closed(self, lane: str) -> None:
        self._rounds.close(lane)

    def touched(self) -> Collection[str]:
        return self._rounds.touched()

    def started(self, waiting: Waiting, now: float) -> None:
        self._rounds.charge(self.lane(waiting.call), 1.0)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        if not over:  # it comes again: its turn was not used
            self._rounds.charge(self.lane(waiting.call), -1.0)

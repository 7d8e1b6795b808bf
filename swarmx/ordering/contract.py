"""What a queue discipline is asked, and what it may be told. Two kinds, nothing to inherit.

An `Order` gives every call one number when it arrives (and once more when its prediction comes): one sorted list, a
binary search per step. A `LaneOrder` sorts calls into lanes (tenants, agents, workflows) and scores the lanes; when a
call has been served, one lane moves. Both may offer any of the hooks of `Hooks`, which the scheduler calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, runtime_checkable

from swarmx.types import Call, Prediction
from swarmx.waiting import Lengths, Waiting

LaneOf = Literal["tenant", "workflow"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as an order sees it.

    workflow_work_s : predicted seconds of the call's whole workflow, 0 when unknown
    token_s, prefill_s : seconds per output and per prompt token, alone, at the pool's mean speed; 1 and 0 until
        learned, so that work then is in tokens
    batched : whether some replica of the pool runs several calls at once
    attained : output tokens that it has produced before it came back to the queue
    """

    call: Call
    prediction: Prediction
    lengths: Lengths
    workflow_work_s: float = 0.0
    token_s: float = 1.0
    prefill_s: float = 0.0
    batched: bool = False
    now: float = 0.0
    attained: float = 0.0

    @property
    def work_s(self) -> float:
        """Expected seconds of this call alone on an empty replica."""
        return self.lengths.mean * self.token_s + self.call.prompt_tokens * self.prefill_s

    @property
    def workflow_tokens(self) -> float:
        """Expected output tokens of this call and all that its workflow still holds after it."""
        rest = self.prediction.remaining_tokens
        return self.lengths.mean + (0.0 if rest is None else float(rest.mean()))


class Order(Protocol):
    """A discipline whose key does not change while a call waits."""

    def key(self, asked: Asked) -> float:
        """Smaller goes first, below the priority class. Infinite: not before `stale` names the call."""
        ...


@runtime_checkable
class LaneOrder(Protocol):
    """A discipline that scores lanes: the best lane's first call goes first."""

    def key(self, asked: Asked) -> float:
        """Place inside the lane."""
        ...

    def lane(self, call: Call) -> str: ...

    def score(self, lane: str) -> float:
        """Smaller goes first, below the priority class; fixed until `touched` names the lane."""
        ...

    def after(self, score: float, lane: str, waiting: Waiting) -> float:
        """What the score would be once this call had started: the order in which a queue is looked through."""
        ...

    def opened(self, lane: str) -> None:
        """The lane has its first waiting call."""

    def closed(self, lane: str) -> None:
        """The lane's last waiting call has left."""

    def touched(self) -> Collection[str] | None:
        """Lanes whose score changed since the last question; None: any may have."""
        ...


def lane_of(call: Call, per: LaneOf) -> str:
    return call.tenant if per == "tenant" else call.workflow


def _nothing(*observed: Any) -> Any:
    return None


def _never(*observed: Any) -> bool:
    return False


def _none(*observed: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an order is told; each is optional there.

    arrived(asked) : a call came, or its prediction did; before its key is asked
    started(waiting, now) : it was sent to a replica
    progressed(waiting, tokens, now) : it has produced so many tokens in this attempt
    stopped(waiting, tokens, now, over) : it left its replica with so many tokens; over: for good, else it waits again
    withdrawn(waiting, now) : it left the queue without having been started
    passed(now) : time has passed
    stale() : ids of waiting calls whose key must be asked again
    owed(lane) : the lane is below its floor, and goes before every class
    """

    arrived: Callable[[Asked], None]
    started: Callable[[Waiting, float], None]
    progressed: Callable[[Waiting, float, float], None]
    stopped: Callable[[Waiting, float, float, bool], None]
    withdrawn: Callable[[Waiting, float], None]
    passed: Callable[[float], None]
    stale: Callable[[], Iterable[str]]
    owed: Callable[[str], bool]

    @classmethod
    def of(cls, order: Order | LaneOrder) -> Hooks:
        absent = {"stale": _none, "owed": _never}
        return cls(**{f.name: getattr(order, f.name, absent.get(f.name, _nothing)) for f in fields(cls)})

"""A call on its way through a handle, from its first ranking until it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from swarmx.scheduler import Scheduler
from swarmx.types import Call, Prediction


class Pending(Protocol):
    """Serve's PendingRequest."""

    args: list[Any]
    kwargs: dict[Any, Any]
    metadata: Any
    future: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class Ride:
    """A call on its way. replica : where it is bound, "" while it waits; asks : how often Serve asked for it

    early : a replica where it ended before its acceptance was heard of; granted : by the queue owner
    shadow : ranked to be compared alone; tried : the last replica that did not take it
    preset : of the owner; workflow_arrival_s : as the caller said it
    """

    pending: Pending
    call: Call
    key: str
    lane: Scheduler
    began_s: float
    prediction: Prediction | None = None
    replica: str = ""
    asks: int = 0
    routed: bool = False
    early: str = ""
    shadow: bool = False
    granted: bool = False
    tried: str = ""
    preset: str = ""
    workflow_arrival_s: float | None = None

    @property
    def policy(self) -> str:
        """Who chose its replica."""
        if self.shadow:
            return "serve"
        return self.preset if self.granted else self.lane.name

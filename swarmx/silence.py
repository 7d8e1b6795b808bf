"""Replicas that take calls and answer none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel

SURELY = 2.0  # times what the calls surely need
GRACE_S = 1.0


def silent_replicas(
    replicas: NDArray[np.float64],
    flights: NDArray[np.float64],
    rows_on: Sequence[Sequence[int]],
    now: float,
) -> list[int]:
    """Indices of replicas with calls in flight that showed no life for twice what these calls surely need.

    A call surely needs what is left to the mean of the top half percent of its distribution, at the replica's speed;
    calls beyond the slots need it one after the other. A sign of life is a first token, progress, or an end.
    replicas, flights : the packed tables of `swarmx.kernel`; rows_on : rows of each replica's flights
    """
    found, heard_s = [], replicas[kernel.HEARD_AT].tolist()
    for i, rows in enumerate(rows_on):
        if not rows or now - heard_s[i] <= GRACE_S or replicas[kernel.TAU, i] <= 0:
            continue
        mine = flights[list(rows)]
        left = float(np.max(mine[:, -1] + mine[:, kernel.F_EXCESS] - mine[:, kernel.F_AGE]))
        rounds = max(1.0, len(rows) / float(replicas[kernel.SLOTS, i]))
        need_s = left * float(replicas[kernel.TAU, i]) * rounds
        need_s += max(0.0, float(replicas[kernel.STALL_UNTIL, i]) - heard_s[i])
        if now - heard_s[i] > SURELY * need_s + GRACE_S:
            found.append(i)
    return found


@dataclass(slots=True)
class Outages:
    """Replicas that get nothing for now although they are open.

    hung : silent ones, until their first sign of life or the end of their last call; paused : replica -> until when
    """

    hung: set[str] = field(default_factory=set)
    paused: dict[str, float] = field(default_factory=dict)

    def __contains__(self, replica: str) -> bool:
        return replica in self.hung or replica in self.paused

    def pause(self, replica: str, until_s: float) -> None:
        """Until then, at least."""
        self.paused[replica] = max(until_s, self.paused.get(replica, until_s))

    def over(self, now: float) -> list[str]:
        """End the pauses that are over; returns whose."""
        found = [name for name, until in self.paused.items() if until <= now]
        for name in found:
            del self.paused[name]
        return found

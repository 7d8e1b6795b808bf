"""Room that is kept free for better classes: a share of every replica's slots, or whole replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.types import PRIORITIES, Priority, ReplicaState


@dataclass(frozen=True, slots=True)
class Reserve:
    """Where calls of a class may not start.

    slots : class -> share of each replica's slots that only it and better classes may take, rounded down to whole
        slots; shares add up for those below. {high: 0.25} of 8 slots: normal and low calls start only while less than
        6 are taken
    replicas : replica id -> worst class that it serves; those not named serve all
    It limits starts, not what runs: nothing is interrupted, and calls of a worse class that run already count as taken.
    The starvation tier goes before all others on what its calls may take, and does not open what is reserved.
    Raises ValueError for shares outside [0, 1) or that add up to 1 or more.
    """

    slots: Mapping[Priority, float] = field(default_factory=dict)
    replicas: Mapping[str, Priority] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(not 0 <= share < 1 for share in self.slots.values()) or sum(self.slots.values()) >= 1:
            raise ValueError(f"reserved shares of slots must add up to less than 1, got {dict(self.slots)}")

    def closed(self, level: int, states: Sequence[ReplicaState], table: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(R,) replicas where a call of that class may not start now. table : rows of `swarmx.kernel`"""
        slots, taken = table[kernel.SLOTS], table[kernel.MINE] + table[kernel.OTHER]
        kept = np.zeros(len(states))
        for name in PRIORITIES[:level]:
            kept += np.floor(self.slots.get(name, 0.0) * slots + 1e-9)
        full: NDArray[np.bool_] = (kept > 0) & (taken + kept >= slots)
        return self.excluded(level, states) | full

    def excluded(self, level: int, states: Sequence[ReplicaState]) -> NDArray[np.bool_]:
        """(R,) replicas that never serve that class."""
        return np.array([level > PRIORITIES.index(self.replicas.get(state.id, "low")) for state in states], dtype=bool)

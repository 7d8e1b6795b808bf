"""The constants of every replica as the service model has learned them, written into the packed replica table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.engine import OnlineFit
from swarmx.types import ReplicaState

Array = NDArray[np.float64]


class LearnedConstants:
    """Keeps rows A to P of a replica table in step with a fit.

    kinds : (R,) device kinds by number
    groups : (replicas by kind, where each kind starts and the last ends); the order inside a kind is the reader's
    one_group : the same of all replicas as they come
    is_fitted : whether every replica has constants; until then seconds cannot be compared
    """

    def __init__(self, fit: OnlineFit) -> None:
        self.fit = fit
        self.kinds: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.groups: tuple[NDArray[np.int64], NDArray[np.int64]] = (self.kinds, np.zeros(1, dtype=np.int64))
        self.one_group = self.groups
        self.is_fitted = False
        self._names: list[str] = []
        self._replicas: list[str] = []
        self._constants: Array = np.zeros((0, 4))  # (kinds, 4); zeros while nothing is known
        self._log_speeds: Array = np.zeros(0)  # (R,) as learned, before their kind's mean is taken off
        self._seen = -1

    def place(self, states: Sequence[ReplicaState], table: Array) -> None:
        """These are the replicas now, in the order of the table; the fit knows them already."""
        names, self.kinds = np.unique([s.device for s in states], return_inverse=True)
        starts = np.concatenate(([0], np.cumsum(np.bincount(self.kinds))))
        self.groups = np.argsort(self.kinds, kind="stable"), starts
        self.one_group = np.arange(len(states)), np.array([0, len(states)])
        self._names, self._replicas = names.tolist(), [s.id for s in states]
        self._log_speeds = np.array([self.fit.log_speed(name) for name in self._replicas])
        self.refitted(table)

    def observed(self, i: int, table: Array) -> None:
        """Replica i was observed: its speed, and after a refit every replica's constants."""
        name = self._replicas[i]
        self._log_speeds[i] = self.fit.log_speed(name)
        if self.fit.refits != self._seen:
            self.refitted(table)
        else:
            kernel.set_constants(table, i, self.kinds, self._constants, self.fit.speed(name))

    def refitted(self, table: Array) -> None:
        """Bring all constants up to date, kind by kind."""
        self._seen = self.fit.refits
        constants = self._constants = np.zeros((len(self._names), 4))
        mean_logs = np.zeros(len(self._names))
        for number, kind in enumerate(self._names):
            found = self.fit.constants_of(kind)
            if found is not None:
                constants[number], mean_logs[number] = found.as_tuple(), self.fit.mean_log_speed(kind)
        kernel.spread_constants(table, self.kinds, constants, mean_logs, self._log_speeds)
        self.is_fitted = bool(self._replicas) and bool(np.all(table[kernel.A] + table[kernel.B] > 0))

"""Our monitor and river's detectors behind one face: rows in, places of alarms out.

river's detectors see each group's relative tail pinball loss over the reference's mean, one detector a group, with the
settings that river ships; a detector that alarms begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from swarmx.drift import DriftMonitor, Group, Reference
from swarmx.drift.scores import scores_of
from swarmx.quantiles import QuantileGrid

Row = tuple[Group, QuantileGrid, float]


class Detector(Protocol):
    def told(self, row: Row, at: float) -> Group | None:
        """Observe a row; the group of an alarm, "*" as its type when it is about a whole device."""
        ...


class Ours:
    def __init__(self, reference: Reference, false_alarms_per_100k: float = 1.0) -> None:
        self.monitor = DriftMonitor(reference, false_alarms_per_100k=false_alarms_per_100k)

    def told(self, row: Row, at: float) -> Group | None:
        alarm = self.monitor.observe(*row, at)
        return None if alarm is None else alarm.group


class River:
    def __init__(self, reference: Reference, make: Callable[[], Any]) -> None:
        self.reference, self.make = reference, make
        self.own: dict[Group, Any] = {}

    def told(self, row: Row, at: float) -> Group | None:
        group, grid, observed = row
        detector = self.own.setdefault(group, self.make())
        loss = scores_of(grid.values, observed).loss / max(self.reference.of(group).loss, 1e-12)
        detector.update(loss)
        return group if detector.drift_detected else None


def detectors() -> dict[str, Callable[[Reference], Detector]]:
    """Needs river."""
    from river import drift

    return {
        "DriftMonitor, 1 per 100k": Ours,
        "DriftMonitor, 100 per 100k": lambda reference: Ours(reference, 100.0),
        "ADWIN": lambda reference: River(reference, drift.ADWIN),
        "ADWIN, delta 1e-6": lambda reference: River(reference, lambda: drift.ADWIN(delta=1e-6)),
        "PageHinkley": lambda reference: River(reference, drift.PageHinkley),
        "PageHinkley, threshold 500": lambda reference: River(reference, lambda: drift.PageHinkley(threshold=500.0)),
        "KSWIN": lambda reference: River(reference, lambda: drift.KSWIN(seed=0)),
    }


SLOW = ("KSWIN",)  # a Kolmogorov-Smirnov test a record: fewer records


def alarms(detector: Detector, rows: Iterable[Row], begin: int = 0) -> list[tuple[int, Group]]:
    """(place, group) of every alarm."""
    found = ((i, detector.told(row, float(i))) for i, row in enumerate(rows, begin))
    return [(i, group) for i, group in found if group is not None]


def concerns(alarm: Group, touched: frozenset[Group]) -> bool:
    """Whether an alarm is about one of the groups that shifted."""
    return alarm in touched or (alarm[0] == "*" and any(alarm[1:] == group[1:] for group in touched))

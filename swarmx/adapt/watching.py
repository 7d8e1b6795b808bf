"""What the loop notices of the champion: drift, where in the stream it began, and target models that are new to it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from swarmx.adapt.events import LoopConfig
from swarmx.adapt.example import Example
from swarmx.adapt.model import Model
from swarmx.adapt.retrain import Changed
from swarmx.drift import Alarm, DriftMonitor, Group, Reference
from swarmx.quantiles import QuantileGrid

REMEMBERED = 50_000  # latest records whose group is known, to place the beginning of a change


@dataclass(frozen=True, slots=True)
class Noticed:
    """kind : alarm or encoder, as in `Event`; changed : what has changed, and since when"""

    kind: str
    changed: Changed
    detail: dict[str, Any]


@dataclass
class Watching:
    """Of one champion after the other; `begin` names the next one.

    monitor : None while the reference of a model that came without one is gathered
    """

    config: LoopConfig
    monitor: DriftMonitor | None = None
    _models: frozenset[str] = frozenset()
    _recent: deque[tuple[int, Group]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _first: list[tuple[Group, QuantileGrid, float]] = field(default_factory=list)
    _unknown: dict[str, int] = field(default_factory=dict)

    def begin(self, model: Model) -> None:
        """A model is held against its own reference."""
        self._models = model.models
        self._first.clear()
        self._unknown.clear()
        self.monitor = None if model.reference is None else self._monitor_of(model.reference)

    def see(self, example: Example, grid: QuantileGrid) -> list[Noticed]:
        """A finished call with the champion's raw prediction."""
        self._recent.append((example.seq, example.group))
        found = self._new_model(example)
        if self.monitor is None:
            self._first.append((example.group, grid, example.tokens))
            if len(self._first) >= self.config.first:
                self.monitor = self._monitor_of(Reference.from_rows(self._first))
                self._first.clear()
            return found
        alarm = self.monitor.observe(example.group, grid, example.tokens, example.finished_s)
        return found if alarm is None else [*found, self._alarmed(alarm, example.seq)]

    def _alarmed(self, alarm: Alarm, seq: int) -> Noticed:
        since = self._onset(alarm)
        told = {"reason": alarm.reason, "evidence": round(alarm.evidence, 2)}
        changed = Changed(alarm.group, since, seq, alarm.reason)
        return Noticed("alarm", changed, {"group": list(alarm.group), "since": since, **told})

    def _onset(self, alarm: Alarm) -> int:
        """Place in the stream of the first of the alarm's last n records."""
        left = alarm.n
        for seq, group in reversed(self._recent):
            if group[1:] == alarm.group[1:] and alarm.group[0] in ("*", group[0]):
                left -= 1
                if left <= 0:
                    return seq
        return self._recent[0][0] if self._recent else 0

    def _new_model(self, example: Example) -> list[Noticed]:
        """The target model is one that the champion has not learned from, and there are enough calls of it by now."""
        if example.model in self._models:
            return []
        self._unknown[example.model] = self._unknown.get(example.model, 0) + 1
        if self._unknown[example.model] != self.config.fresh:
            return []
        reason = f"the target model {example.model!r} is new to the predictor"
        changed = Changed(("*", example.model, example.device), example.seq, example.seq, reason)
        return [Noticed("encoder", changed, {"reason": reason})]

    def _monitor_of(self, reference: Reference) -> DriftMonitor:
        rate, material = self.config.false_alarms_per_100k, self.config.material
        return DriftMonitor(reference, false_alarms_per_100k=rate, material=material, seed=self.config.seed)

"""Starts no faster than a provider allows, and fewer still while it says that there are too many."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

import numpy as np

CUT, GROWTH = 0.8, 1.02  # of the rate that was accepted before a refusal; per call that ends well after it


@dataclass(frozen=True, slots=True)
class Pacing:
    """What limits the starts on each replica; for hosted models with a limit of calls, enforced by HTTP 429.

    per_s, burst : a bucket of starts, where the limit is known
    first_s, most_s : after a refusal the replica gets nothing for first_s, doubled for each further refusal until a
        call there ends well, at most most_s; drawn between half of that and all of it, so that several schedulers
        spread. What was under way when the pause began does not count again
    window_s : after that starts are spaced for 0.8 of the rate that was accepted in the window before, which grows by
        2 % with each call that ends well: the limit is found from below, whoever else uses it
    """

    per_s: float = inf
    burst: float = 1.0
    first_s: float = 0.5
    most_s: float = 30.0
    window_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.per_s > 0 or not self.burst >= 1:
            raise ValueError(f"a pace needs per_s > 0 and burst >= 1, got {self.per_s} and {self.burst}")
        if not 0 < self.first_s <= self.most_s or not self.window_s > 0:
            raise ValueError(f"pauses need 0 < first_s <= most_s and window_s > 0, got {self}")


@dataclass(slots=True)
class _Place:
    """left : starts in the bucket as of then; per_s : rate that is thought to be accepted; accepted : times of starts

    refusals : pauses since a call ended well; until_s : end of the last pause
    """

    left: float
    as_of_s: float
    per_s: float = inf
    refusals: int = 0
    until_s: float = -inf
    accepted: deque[float] = field(default_factory=lambda: deque(maxlen=1024))


@dataclass
class Pacer:
    """Applies a `Pacing`; each answer is the time until which the replica must be left alone, or None."""

    rules: Pacing
    _places: dict[str, _Place] = field(default_factory=dict)

    def started(self, replica: str, now: float) -> float | None:
        place, rules = self._place(replica, now), self.rules
        place.accepted.append(now)
        per_s = min(rules.per_s, place.per_s)
        if per_s == inf:
            return None
        burst = rules.burst if place.per_s == inf else 1.0
        place.left = min(burst, place.left + (now - place.as_of_s) * per_s) - 1
        place.as_of_s = now
        return None if place.left >= 1 else now + (1 - place.left) / per_s

    def refused(self, replica: str, now: float, rng: np.random.Generator) -> float | None:
        place, rules = self._place(replica, now), self.rules
        if place.accepted:
            place.accepted.pop()
        if now < place.until_s:
            return None
        recent = sum(now - when <= rules.window_s for when in place.accepted)
        place.per_s = max(min(CUT * recent / rules.window_s, place.per_s), 1 / rules.most_s)
        place.left, place.as_of_s = 0.0, now
        pause_s = min(rules.first_s * 2.0 ** min(place.refusals, 60), rules.most_s)
        place.refusals += 1
        place.until_s = now + pause_s * float(rng.uniform(0.5, 1.0))
        return place.until_s

    def ended(self, replica: str) -> None:
        """A call ended well there."""
        if (place := self._places.get(replica)) is not None:
            place.refusals = 0
            place.per_s *= GROWTH

    def _place(self, replica: str, now: float) -> _Place:
        return self._places.setdefault(replica, _Place(self.rules.burst, now))

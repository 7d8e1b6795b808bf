"""The one wrapper between what a policy wants and what happens: every bound, delay and step is applied here, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from swarmx.scaling.decisions import Want
from swarmx.scaling.history import INDEX, History
from swarmx.scaling.policy import whole
from swarmx.scaling.samples import PoolSample


@dataclass(frozen=True, slots=True)
class Rate:
    """At most max(share · replicas, count) within `period_s`."""

    count: int
    period_s: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """minimum, maximum : replicas; minimum 0 allows none
    up_delay_s, down_delay_s : a rise (fall) must have been wanted for so long; the least (most) of that time counts
    up, down : how fast, None: at once
    tolerance : a change by no more than this share is not made
    consolidate : fewer replicas only if the calls in the pool fill at most this share of the slots that remain, None:
        no such check. Without it a pool flaps between N and N - 1: what two hold easily one may not.
    zero_after_s : the last replica goes after so long without any call
    cool_down_s : no fall so soon after a rise
    """

    minimum: int = 1
    maximum: int = 100
    up_delay_s: float = 0.0
    down_delay_s: float = 60.0
    up: Rate | None = None
    down: Rate | None = None
    tolerance: float = 0.0
    consolidate: float | None = 0.9
    zero_after_s: float = 300.0
    cool_down_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(
                f"bounds need 0 <= minimum <= maximum and maximum >= 1, got {self.minimum} and {self.maximum}"
            )
        if min(self.up_delay_s, self.down_delay_s, self.tolerance, self.zero_after_s, self.cool_down_s) < 0:
            raise ValueError(f"delays and tolerance must not be negative, got {self}")


@dataclass
class Memory:
    """What bounds remember of one pool; times on the history's clock.

    wishes : (time, replicas wanted); targets : (time, replicas) before and after every step
    """

    history: History = field(default_factory=History)
    wishes: list[tuple[float, int]] = field(default_factory=list)
    targets: list[tuple[float, int]] = field(default_factory=list)

    def forget(self, keep_s: float) -> None:
        """Drop what is older, but for the last entry."""
        limit = self.history.clock_s - keep_s
        for entries in (self.wishes, self.targets):
            while len(entries) > 1 and entries[0][0] < limit:
                entries.pop(0)


def bounded(want: Want | None, sample: PoolSample, bounds: Bounds, memory: Memory) -> tuple[int, tuple[str, ...]]:
    """(target, what was changed and why). Remembers the wish and the target.

    Replicas that are starting count as there, so nothing is ordered twice. Without a wish the pool stays as it is,
    within minimum and maximum.
    """
    now, current = memory.history.clock_s, sample.committed
    notes: list[str] = []
    memory.targets.append((now, current))  # what a step is measured from
    if want is None:
        target = _clamp(current, bounds, notes)
        notes.append("held: a metric is missing")
    else:
        memory.wishes.append((now, want.replicas))
        target = _clamp(want.replicas, bounds, notes)
        if target > current:
            target = _rise(target, current, bounds, memory, notes)
        elif target < current:
            target = _fall(target, current, sample, bounds, memory, notes)
        target = _last(target, current, sample, bounds, memory, notes)
    memory.targets.append((now, target))
    rates = [r.period_s for r in (bounds.up, bounds.down) if r is not None]
    memory.forget(max(bounds.up_delay_s, bounds.down_delay_s, bounds.cool_down_s, *rates, 1.0) * 2)
    return target, tuple(notes)


def _clamp(wanted: int, bounds: Bounds, notes: list[str]) -> int:
    target = min(max(wanted, bounds.minimum), bounds.maximum)
    if target != wanted:
        notes.append(f"{wanted} wanted, bounds are {bounds.minimum} to {bounds.maximum}")
    return target


def _rise(target: int, current: int, bounds: Bounds, memory: Memory, notes: list[str]) -> int:
    if current >= bounds.minimum and target <= current * (1 + bounds.tolerance):
        notes.append(f"rise to {target} is within tolerance")
        return current
    now = memory.history.clock_s
    if bounds.up_delay_s and current >= bounds.minimum:
        steady = min(w for t, w in memory.wishes if t >= now - bounds.up_delay_s)
        if _young(memory, bounds.up_delay_s):
            steady = current
        if steady < target:
            notes.append(f"rise to {target} not yet wanted for {bounds.up_delay_s:g} s")
            target = max(steady, current)
    if bounds.up is not None and current >= bounds.minimum:
        lowest = min((n for t, n in memory.targets if t > now - bounds.up.period_s), default=current)
        most = max(lowest + max(bounds.up.count, int(bounds.up.share * lowest)), current)
        if target > most:
            notes.append(f"rise to {target} is faster than {bounds.up.count} per {bounds.up.period_s:g} s")
            target = most
    return max(target, min(bounds.minimum, bounds.maximum))


def _fall(target: int, current: int, sample: PoolSample, bounds: Bounds, memory: Memory, notes: list[str]) -> int:
    if current > bounds.maximum:
        return target
    now, wished = memory.history.clock_s, target
    if target >= current * (1 - bounds.tolerance):
        notes.append(f"fall to {target} is within tolerance")
        return current
    if bounds.down_delay_s:
        most = max(w for t, w in memory.wishes if t >= now - bounds.down_delay_s)
        if _young(memory, bounds.down_delay_s):
            most = current
        target = min(max(target, most), current)
    if bounds.cool_down_s and _rose_within(memory, bounds.cool_down_s):
        target = current
    if bounds.down is not None:
        highest = max((n for t, n in memory.targets if t > now - bounds.down.period_s), default=current)
        slowest = highest - max(bounds.down.count, int(bounds.down.share * highest))
        target = min(max(target, slowest), current)
    if target > wished:
        notes.append(f"fall to {wished} delayed or slowed, {target} for now")
    if bounds.consolidate is not None and target < current and sample.busy is not None:
        enough = whole(sample.busy / (sample.slots * bounds.consolidate))
        if enough > target:
            notes.append(f"{target} could not hold the {sample.busy:g} calls of the pool")
            target = min(enough, current)
    return target


def _last(target: int, current: int, sample: PoolSample, bounds: Bounds, memory: Memory, notes: list[str]) -> int:
    """The way to and from zero."""
    if target == 0 and sample.busy:
        notes.append("calls are here: at least one")
        return 1
    if target > 0 or current == 0:
        return target
    rows = memory.history.window(bounds.zero_after_s)
    calls = rows[:, INDEX["waiting"]] + rows[:, INDEX["running"]]
    arrived = memory.history.increase("arrived", bounds.zero_after_s)
    silent = not (calls > 0).any() and (arrived is None or arrived[0] == 0)
    if silent and rows[-1, 0] - rows[0, 0] >= bounds.zero_after_s - memory.history.max_gap_s / 2:
        return 0
    notes.append(f"the last one stays until {bounds.zero_after_s:g} s have passed without a call")
    return 1


def _young(memory: Memory, delay_s: float) -> bool:
    """Whether the memory does not reach back as far as the delay, as after a restart."""
    first = memory.history.rows[0][0] if memory.history.rows else memory.history.clock_s
    return memory.history.clock_s - first < delay_s - 1e-9


def _rose_within(memory: Memory, seconds: float) -> bool:
    limit = memory.history.clock_s - seconds
    recent = [n for t, n in memory.targets if t >= limit]
    return any(b > a for a, b in pairwise(recent))

"""The monitor: finished calls with their predictions go in, an alarm comes out when a group's losses have changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from swarmx.drift.evidence import DIRECTIONS, Evidence, Finding, window_of
from swarmx.drift.reference import GroupReference, Ranks, Reference, cell
from swarmx.drift.scores import Group, scores_of
from swarmx.drift.window import Figures, Window, figures
from swarmx.quantiles import QuantileGrid

STREAMS = 2  # a record counts for its group and for its device as a whole


@dataclass(frozen=True, slots=True)
class Alarm:
    """A group's losses are no longer those of training time.

    group : (type, model, device), or ("*", model, device) when it shows over all types together
    evidence : log of the statistic, at least the log of the threshold; loss : mean relative tail pinball loss over the
    last n records, since the change began as far as can be told; reference_loss : at training time
    """

    group: Group
    evidence: float
    loss: float
    reference_loss: float
    n: int
    reason: str
    at: float


class DriftMonitor:
    """Watches each group's tail pinball losses and the places of observations in their grids.

    false_alarms_per_100k : expected alarms in 100,000 records while nothing changes, at most, over all groups together
    material : a change is reported when the mean loss has grown by this factor, or the lengths differ from the
        predictions by it; smaller ones cost less than a retraining. It only withholds alarms
    most_groups : bound of memory; later groups are watched through their device alone
    seed : of the ranks of ties

    What is tested is whether records go on as they were since training, per group: shares of groups may change freely.
    An unknown group begins with the pool's losses, worth `reference.ENOUGH` rows, and soon is held against itself. The
    rate is proven for records of a group that are exchangeable, see `swarmx.drift.evidence`; bursts of nearly equal
    calls weigh more than they should. All cost is here, about 20 microseconds a record, none in a decision.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        false_alarms_per_100k: float = 1.0,
        material: float = 1.1,
        most_groups: int = 10_000,
        seed: int = 0,
    ) -> None:
        if not false_alarms_per_100k > 0:
            raise ValueError(f"false_alarms_per_100k must be positive, got {false_alarms_per_100k}")
        self.reference, self.false_alarms_per_100k, self.material = reference, false_alarms_per_100k, material
        self.most_groups, self.seed = most_groups, seed
        self.threshold = STREAMS * 1e5 / false_alarms_per_100k
        self.window = window_of(self.threshold)
        self.records = self.unusable = self.alarms_raised = 0
        self._rng = np.random.default_rng(seed)
        self.groups: dict[Group, Watched] = {}
        self.devices: dict[tuple[str, str], Evidence] = {}

    def observe(self, group: Group, grid: QuantileGrid, observed: float, now: float) -> Alarm | None:
        """One finished call: what was predicted, what it was, and when it ended; the alarm that this raises, if any.

        An observation that is not a finite number >= 0 is counted in `unusable` and otherwise ignored.
        """
        if not (math.isfinite(observed) and observed >= 0):
            self.unusable += 1
            return None
        self.records += 1
        watched = self._watched(group)
        if watched is None:
            return None
        own = watched.reference
        found = scores_of(grid.values, observed)
        watched.window.add(found, observed, int(grid.values.searchsorted(observed)))
        p_loss, p_place = watched.losses.rank(found.loss, self._rng), watched.places.rank(found.place, self._rng)
        told = now, p_loss, p_place, found.loss / max(own.loss, 1e-12), found.log_ratio - own.bias
        device = self.devices.setdefault(group[1:], Evidence(self.window))
        alarm = self._look(group, watched.evidence, now) if watched.evidence.add(*told) else None
        if device.add(*told) and alarm is None:
            alarm = self._look(("*", *group[1:]), device, now)
        elif alarm is not None:
            device.alarm(now)  # it has seen the same records
        return alarm

    def alarms(self, now: float) -> list[Alarm]:
        """Every alarm that the evidence gathered so far supports; for a monitor that was merged from others."""
        found = [self._look(group, watched.evidence, now) for group, watched in sorted(self.groups.items())]
        found += [self._look(("*", *device), evidence, now) for device, evidence in sorted(self.devices.items())]
        return [alarm for alarm in found if alarm is not None]

    def snapshot(self) -> dict[Group, Figures]:
        """Window figures of each group that has been seen."""
        out = {}
        for group, watched in self.groups.items():
            found = figures(watched.window.total(), watched.reference.loss)
            if found is not None:
                out[group] = found
        return out

    def merge(self, other: DriftMonitor) -> DriftMonitor:
        """Both monitors' records in one, as if one had seen them in order of time; neither changes.

        Exact for counts and evidence (of full blocks), up to the sketches' error for the quantiles of losses and
        ratios. Commutative and associative in the same sense. Raises ValueError when the two have different references
        or rates.
        """
        if self.reference != other.reference or self.threshold != other.threshold:
            raise ValueError("only monitors of the same reference and rate can be merged")
        out = DriftMonitor(
            self.reference, false_alarms_per_100k=self.false_alarms_per_100k, material=self.material,
            most_groups=max(self.most_groups, other.most_groups), seed=self.seed,
        )  # fmt: skip
        out.records, out.unusable = self.records + other.records, self.unusable + other.unusable
        out.alarms_raised = self.alarms_raised + other.alarms_raised
        nothing = DriftMonitor(self.reference, false_alarms_per_100k=self.false_alarms_per_100k)
        for group in sorted({*self.groups, *other.groups}):
            one, two = (monitor.groups.get(group) or nothing._watched(group) for monitor in (self, other))
            assert one is not None and two is not None
            out.groups[group] = one.merged(two)
        fresh = Evidence(self.window)
        for device in sorted({*self.devices, *other.devices}):
            one_e, two_e = self.devices.get(device, fresh), other.devices.get(device, fresh)
            out.devices[device] = one_e.merged(two_e)
        return out

    def _watched(self, group: Group) -> Watched | None:
        watched = self.groups.get(group)
        if watched is None and len(self.groups) < self.most_groups:
            watched = self.groups[group] = Watched.begin(self.reference.of(group), self.window)
        return watched

    def _look(self, group: Group, evidence: Evidence, now: float) -> Alarm | None:
        if evidence.at_most() < math.log(self.threshold):
            return None
        found = evidence.look()
        if found is None or found.statistic < math.log(self.threshold) or not self._matters(found):
            return None
        evidence.alarm(now)
        self.alarms_raised += 1
        reference_loss = 1.0 if group[0] == "*" else self.reference.of(group).loss
        return Alarm(
            group, found.statistic, found.loss * reference_loss, reference_loss, found.records, _reason(found), now
        )

    def _matters(self, found: Finding) -> bool:
        return found.loss >= self.material or abs(found.log_ratio) >= math.log(self.material)


def _reason(found: Finding) -> str:
    ratio = math.exp(min(found.log_ratio, 50.0))
    return (
        f"{DIRECTIONS[found.direction]}, by their ranks, in the last {found.records} calls: mean tail loss "
        f"{found.loss:.2f} and length over prediction {ratio:.2f} times those of training"
    )


class Counter:
    """The ranks of a reference and of everything since: gives each new value its conformal p-value."""

    def __init__(self, ranks: Ranks, counts: list[float] | None = None) -> None:
        if counts is not None and len(counts) != len(ranks.counts):
            raise ValueError(f"this reference has {len(ranks.counts)} cells, the counts {len(counts)}")
        self.start = ranks
        self.edges = ranks.edges
        self.counts = list(ranks.counts) if counts is None else counts
        self.total = sum(self.counts)

    def rank(self, value: float, rng: np.random.Generator) -> float:
        """p in (0, 1), small for a large value; the value counts from now on."""
        at = cell(self.edges, value)
        above = sum(self.counts[at + 1 :])
        p = (above + rng.random() * (self.counts[at] + 1)) / (self.total + 1)
        self.counts[at] += 1
        self.total += 1
        return min(max(p, 1e-12), 1 - 1e-12)

    def merged(self, other: Counter) -> Counter:
        added = zip(self.counts, other.counts, self.start.counts, strict=True)
        return Counter(self.start, [a + b - start for a, b, start in added])


@dataclass
class Watched:
    """What is kept of one group."""

    reference: GroupReference
    window: Window
    evidence: Evidence
    losses: Counter
    places: Counter

    @classmethod
    def begin(cls, own: GroupReference, window: int) -> Watched:
        return cls(
            own,
            Window(window, own.predicted, own.observed),
            Evidence(window),
            Counter(own.losses),
            Counter(own.places),
        )

    def merged(self, other: Watched) -> Watched:
        return replace(
            self,
            window=self.window.merged(other.window),
            evidence=self.evidence.merged(other.evidence),
            losses=self.losses.merged(other.losses),
            places=self.places.merged(other.places),
        )

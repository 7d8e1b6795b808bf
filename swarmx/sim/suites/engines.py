"""The replicas of a recorded log: the service model of each device kind, fitted from what the calls took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import EngineConstants, Segment
from swarmx.errors import BadInput
from swarmx.sim.cluster import Cluster, ReplicaSpec
from swarmx.types import CallRecord

Array = NDArray[np.float64]
ENOUGH_CALLS = 30  # of a device kind, before its constants are believed
ENOUGH_LONE = 15  # prompts alone on an engine, before their time alone says what prefill costs
REWEIGHTINGS = 10


@dataclass(frozen=True, slots=True)
class Busy:
    """What one replica was doing over time, from its calls: integrals that answer for any stretch of time.

    times : (E,) where something begins or ends; running, kv : (E,) integrals up to then of calls decoding and of
    their context tokens; firsts : (N,) sorted first-token times; prefilled : (N + 1,) prompt tokens up to each
    """

    times: Array
    running: Array
    kv: Array
    firsts: Array
    prefilled: Array

    @classmethod
    def of(cls, calls: Sequence[CallRecord]) -> Busy:
        first = np.array([c.first_token_s for c in calls], dtype=np.float64)
        end = np.array([c.finished_s for c in calls], dtype=np.float64)
        held = np.array([c.prompt_tokens + c.output_tokens / 2 for c in calls], dtype=np.float64)
        fresh = np.array([max(c.prompt_tokens - c.cached_tokens, 0) for c in calls], dtype=np.float64)
        marks = np.concatenate([first, end])
        order = np.argsort(marks, kind="stable")
        times, change = marks[order], np.concatenate([np.ones_like(first), -np.ones_like(end)])[order]
        context = np.concatenate([held, -held])[order]
        steps = np.diff(times, prepend=times[0])
        level, load = np.cumsum(change), np.cumsum(context)
        running = np.cumsum(steps * np.concatenate([[0.0], level[:-1]]))
        kv = np.cumsum(steps * np.concatenate([[0.0], load[:-1]]))
        by_first = np.argsort(first, kind="stable")
        return cls(times, running, kv, first[by_first], np.concatenate([[0.0], np.cumsum(fresh[by_first])]))

    def over(self, start: float, end: float) -> tuple[float, float, float]:
        """Mean calls decoding, their mean context tokens, and prompt tokens of calls that began inside."""
        span = end - start
        n = np.interp([start, end], self.times, self.running)
        kv = np.interp([start, end], self.times, self.kv)
        low, high = np.searchsorted(self.firsts, [start, end], side="right")
        fresh = self.prefilled[max(high, low)] - self.prefilled[low]
        return float(n[1] - n[0]) / span, float(kv[1] - kv[0]) / span, float(fresh)


def slots_seen(calls: Sequence[CallRecord]) -> int:
    """Most calls that ran at once on a replica: as reported at dispatch, or as their answers overlapped."""
    reported = max((call.running_at_dispatch or 0 for call in calls), default=1)
    marks = [(c.first_token_s or 0.0, 1) for c in calls] + [(c.finished_s or 0.0, -1) for c in calls]
    return int(np.max(np.cumsum([step for _, step in sorted(marks)]), initial=max(reported, 1)))


def recorded_cluster(records: Sequence[CallRecord], slots: Mapping[str, int] | None = None) -> Cluster:
    """The replicas that a log names, as batched engines with the constants of their device kind.

    slots : replica -> calls it runs at once; where not given, the most that the log shows, which is
        too low for a replica that was never full
    Raises BadInput when no device kind has enough calls with a first token and an end.
    """
    calls = [r for r in records if r.replica and _timed(r)]  # whatever came of them, they kept the engine busy
    by_replica: dict[str, list[CallRecord]] = {}
    for record in calls:
        by_replica.setdefault(str(record.replica), []).append(record)
    constants = _constants(by_replica)
    specs = []
    for name, group in sorted(by_replica.items()):
        kind = group[0].device or "default"
        most = slots_seen(group)
        specs.append(
            ReplicaSpec(name, device=kind, batched=True, slots=(slots or {}).get(name, most), service=constants[kind])
        )
    return _with_speeds(specs)


def _timed(record: CallRecord) -> bool:
    times = (record.arrival_s, record.first_token_s, record.finished_s)
    return all(t is not None for t in times) and record.output_tokens > 0


def _constants(by_replica: Mapping[str, Sequence[CallRecord]]) -> dict[str, EngineConstants]:
    """Constants per device kind; a kind with few calls takes those of all kinds together."""
    segments: dict[str, list[Segment]] = {}
    for group in by_replica.values():
        segments.setdefault(group[0].device or "default", []).extend(segments_of(group))
    every = [s for found in segments.values() for s in found]
    if len(every) < ENOUGH_CALLS:
        raise BadInput(
            f"the log has {len(every)} calls with replica, first_token_s and finished_s; {ENOUGH_CALLS} are needed "
            "to fit its engines"
        )
    pooled = fit_engine(every)
    return {kind: fit_engine(s) if len(s) >= ENOUGH_CALLS else pooled for kind, s in segments.items()}


def fit_engine(segments: Sequence[Segment]) -> EngineConstants:
    """Non-negative constants whose predicted seconds add up to the observed ones, in every direction of the fit.

    Errors are taken to grow with the root of the predicted time (weights 1 / prediction, iterated): weights from the
    observed time would favour segments that happened to be quick, and make the engine too fast by their scatter.
    Prefill is read off prompts that were alone on their engine, where there are enough of them: beside decoding calls,
    other things that slow these down would be counted as prefill too.
    Raises BadInput when the segments identify nothing.
    """
    lone = [s.seconds / s.prefilled for s in segments if s.tokens == 0 and s.prefilled > 0]
    if len(lone) >= ENOUGH_LONE:
        p = float(np.median(lone))
        a, b, c = _fit([s for s in segments if s.tokens > 0], 3, p)
    else:
        a, b, c, p = _fit(segments, 4, 0.0)
    if not a + b > 0:
        raise BadInput("the log's calls do not identify a service model: no time passes while they decode")
    return EngineConstants(a, b, c, p)


def _fit(segments: Sequence[Segment], unknowns: int, p: float) -> list[float]:
    """The first so many of a, b, c, p. p : seconds per prompt token as far as they are known, taken off beforehand"""
    from scipy.optimize import nnls

    work = np.array([(s.tokens, s.tokens * s.batch, s.tokens * s.kv, s.prefilled)[:unknowns] for s in segments])
    seconds = np.array([s.seconds for s in segments])
    known = p * np.array([s.prefilled for s in segments])
    weight = 1 / np.sqrt(np.maximum(seconds, 1e-6))
    scale = np.maximum(work.max(axis=0), 1e-12)
    theta = np.zeros(unknowns)
    for _ in range(REWEIGHTINGS):
        theta, _ = nnls((work / scale) * weight[:, None], (seconds - known) * weight)
        predicted = known + (work / scale) @ theta
        weight = 1 / np.sqrt(np.maximum(predicted, np.quantile(seconds, 0.01)))
    found: list[float] = (theta / scale).tolist()
    return found


def segments_of(calls: Sequence[CallRecord]) -> list[Segment]:
    """What the calls of one replica say about it: a segment of decoding each, and one of prefill for those that did
    not have to queue there.
    """
    busy = Busy.of(calls)
    out = []
    for call in calls:
        first, end = call.first_token_s, call.finished_s
        assert first is not None and end is not None
        if call.output_tokens > 1 and end > first:
            n, kv, fresh = busy.over(first, end)
            out.append(Segment(end - first, call.output_tokens - 1, n, kv, fresh))
        waited = call.waiting_at_dispatch
        if call.dispatched_s is not None and waited == 0 and first > call.dispatched_s:
            fresh = max(call.prompt_tokens - call.cached_tokens, 0)
            if fresh and call.running_at_dispatch == 0:  # alone: nothing else can be in this time
                out.append(Segment(first - call.dispatched_s, 0.0, 0.0, 0.0, fresh))
    return out


def _with_speeds(specs: Sequence[ReplicaSpec]) -> Cluster:
    """Tell schedulers each replica's speed relative to the pool's mean, at half of its slots."""
    rates = [s.slots / float(s.service.tau((s.slots + 1) / 2, 0.0)) for s in specs]
    mean = float(np.mean(rates))
    return Cluster(tuple(replace(s, told_speed=float(r / mean)) for s, r in zip(specs, rates, strict=True)))

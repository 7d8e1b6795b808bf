"""How busy replicas are when a call is sent to one: from what replicas report, or from what a log recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.engine import Segment
from swarmx.types import CallRecord, ReplicaState

Array = NDArray[np.float64]
MOST = 1e9  # tokens or calls that a report is believed to speak of


@dataclass(frozen=True, slots=True)
class Situations:
    """R candidate replicas, or N recorded dispatches, all (R,). speed : relative speed as configured

    running, waiting : calls there before this one; kv, kv_capacity : tokens; slots : calls at once
    """

    devices: tuple[str, ...]
    running: Array
    waiting: Array
    kv: Array
    kv_capacity: Array
    slots: Array
    speed: Array

    @classmethod
    def of(cls, states: Sequence[ReplicaState]) -> Situations:
        """As the replicas report. What is not finite, or negative, counts as 0 (slots, speed: 1); `MOST` bounds all,
        and a speed lies within a thousandth and a thousand."""

        def column(name: str, floor: float = 0.0) -> Array:
            found = np.array([float(getattr(state, name)) for state in states]).reshape(-1)
            return np.where(np.isfinite(found) & (found > 0), np.clip(found, floor, MOST), floor)

        speed = column("speed")
        speed = np.clip(np.where(speed > 0, speed, 1.0), 1e-3, 1e3)
        return cls(
            tuple(state.device for state in states), column("running"), column("waiting"), column("kv_tokens"),
            column("kv_capacity_tokens", 1.0), column("slots", 1.0), speed,
        )  # fmt: skip

    def rows(self, chosen: NDArray[np.int64]) -> Situations:
        parts = (self.running, self.waiting, self.kv, self.kv_capacity, self.slots, self.speed)
        return Situations(tuple(self.devices[i] for i in chosen.tolist()), *(part[chosen] for part in parts))


def timed(records: Sequence[CallRecord]) -> NDArray[np.int64]:
    """Places of the records that can teach seconds: ended well, on a known device, with both times."""
    return np.array(
        [
            i for i, r in enumerate(records)
            if r.status == "ok" and r.device and r.output_tokens > 0
            and r.dispatched_s is not None and r.finished_s is not None and r.finished_s > r.dispatched_s
        ],
        dtype=np.int64,
    )  # fmt: skip


def recorded(calls: Sequence[CallRecord]) -> Situations:
    """Of timed calls, as the log has them; what it lacks is counted from the calls that overlap on the same replica.

    A device's slots are the most calls that ran on one of its replicas while another waited; where none ever waited,
    one more than the most that ran when a call was sent. Its KV capacity is the most tokens that were held.
    """
    there = _in_flight(calls)
    running = np.array([float(n) if r.running_at_dispatch is None else float(r.running_at_dispatch)
                        for r, n in zip(calls, there, strict=True)])  # fmt: skip
    waiting = np.array([float(r.waiting_at_dispatch or 0) for r in calls])
    kv = np.array([float(r.kv_tokens_at_dispatch or 0) for r in calls])
    devices = tuple(str(r.device) for r in calls)
    slots, held = np.ones(len(calls)), np.ones(len(calls))
    for name in set(devices):
        own = np.array([device == name for device in devices])
        full = own & (waiting > 0)
        slots[own] = max(running[full].max() if full.any() else running[own].max() + 1, 1.0)
        held[own] = max(kv[own].max(), 1.0)
    return Situations(devices, running, waiting, kv, held, slots, np.ones(len(calls)))


def _in_flight(calls: Sequence[CallRecord]) -> NDArray[np.int64]:
    """Calls on the same replica that had been sent before each one and had not ended, (N,)."""
    out = np.zeros(len(calls), np.int64)
    for places in _by_replica(calls).values():
        sent = np.array([float(calls[i].dispatched_s or 0.0) for i in places])
        ended = np.array([float(calls[i].finished_s or 0.0) for i in places])
        before = np.searchsorted(np.sort(sent), sent, side="left")
        out[places] = np.maximum(before - np.searchsorted(np.sort(ended), sent, side="right"), 0)
    return out


def _by_replica(calls: Sequence[CallRecord]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for i, call in enumerate(calls):
        found[f"{call.replica or ''}\0{call.device}"].append(i)
    return found


def segments(calls: Sequence[CallRecord], at: Situations) -> list[Segment]:
    """Each timed call as a stretch for `engine.fit_segments`: from its dispatch, prefill included; from its first token
    where it had queued and the log has that time.

    Batch and KV are averages over the stretch of what the log shows on the replica; where it shows less than the
    replicas reported, being a part of the traffic, they are the reported ones at the dispatch.
    """
    found: list[Segment | None] = [None] * len(calls)
    partial = float(_in_flight(calls).mean()) < 0.8 * float(at.running.mean())
    queued = (at.waiting > 0) | (at.running >= at.slots)
    for places in _by_replica(calls).values():
        own = [calls[i] for i in places]
        late = np.array([queued[i] and calls[i].first_token_s is not None for i in places])
        sent = np.array([float(r.dispatched_s or 0.0) for r in own])
        decoding = np.array([float(r.dispatched_s or 0.0) if r.first_token_s is None else r.first_token_s for r in own])
        ends = np.array([float(r.finished_s or 0.0) for r in own])
        kv = np.array([r.prompt_tokens + r.output_tokens / 2 for r in own])
        begins = np.where(late, decoding, sent)
        seconds = np.maximum(ends - begins, 1e-6)
        batch, held = (
            (_integral(decoding, ends, h, ends) - _integral(decoding, ends, h, begins)) / seconds
            for h in (np.ones(len(own)), kv)
        )  # fmt: skip
        if partial:
            batch, held = np.minimum(at.running + 1, at.slots)[places], at.kv[places] + kv
        prefilled = _prefilled(own, decoding, begins, ends)
        for n, i in enumerate(places):
            tokens = float(own[n].output_tokens - late[n])
            found[i] = Segment(
                float(seconds[n]), tokens, max(float(batch[n]), 1.0), float(held[n]), float(prefilled[n])
            )
    return [segment for segment in found if segment is not None]


def _prefilled(calls: Sequence[CallRecord], firsts: Array, begins: Array, ends: Array) -> Array:
    """Uncached prompt tokens of the calls of one replica whose first token came within each stretch, (N,)."""
    uncached = np.array([max(r.prompt_tokens - r.cached_tokens, 0) for r in calls], dtype=float)
    order = np.argsort(firsts)
    sums = np.concatenate(([0.0], np.cumsum(uncached[order])))
    up_to, after = (np.searchsorted(firsts[order], at, side="right") for at in (ends, begins))
    return np.asarray(np.maximum(sums[up_to] - sums[after], 0.0))


def _integral(begins: Array, ends: Array, heights: Array, at: Array) -> Array:
    """Integral up to each time of the sum of boxes (N,), exactly: piecewise linear between the boxes' edges."""
    times = np.concatenate((begins, ends))
    order = np.argsort(times, kind="stable")
    times, jumps = times[order], np.concatenate((heights, -heights))[order]
    level = np.cumsum(jumps)
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(times))))
    return np.interp(at, times, area)

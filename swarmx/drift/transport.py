"""A monitor as JSON: how a router's windows travel to where they are merged, and survive a restart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from swarmx.drift.evidence import Block, Evidence
from swarmx.drift.monitor import Counter, DriftMonitor, Watched
from swarmx.drift.reference import Reference
from swarmx.drift.scores import Group
from swarmx.drift.window import Tally, Window


def packed(monitor: DriftMonitor) -> dict[str, Any]:
    """All but the reference, which both ends have; up to `evidence.BLOCK` - 1 records a stream are left behind."""
    return {
        "false_alarms_per_100k": monitor.false_alarms_per_100k,
        "material": monitor.material,
        "seed": monitor.seed,
        "records": monitor.records,
        "unusable": monitor.unusable,
        "alarms_raised": monitor.alarms_raised,
        "groups": [{"group": list(group), **_watched(one)} for group, one in monitor.groups.items()],
        "devices": [{"device": list(device), **_evidence(one)} for device, one in monitor.devices.items()],
    }


def unpacked(reference: Reference, data: Mapping[str, Any]) -> DriftMonitor:
    """The monitor again. Raises KeyError, TypeError or ValueError when the data are not of a monitor of `reference`."""
    monitor = DriftMonitor(
        reference, false_alarms_per_100k=float(data["false_alarms_per_100k"]), material=float(data["material"]),
        seed=int(data["seed"]),
    )  # fmt: skip
    monitor.records, monitor.unusable = int(data["records"]), int(data["unusable"])
    monitor.alarms_raised = int(data["alarms_raised"])
    for entry in data["groups"]:
        kind, model, device = map(str, entry["group"])
        monitor.groups[kind, model, device] = _watched_of(reference, (kind, model, device), monitor.window, entry)
    for entry in data["devices"]:
        model, device = map(str, entry["device"])
        monitor.devices[model, device] = _evidence_of(monitor.window, entry)
    return monitor


def _watched(one: Watched) -> dict[str, Any]:
    return {
        "filling": one.window.filling.to_json(),
        "before": one.window.before.to_json(),
        "losses": one.losses.counts,
        "places": one.places.counts,
        **_evidence(one.evidence),
    }


def _watched_of(reference: Reference, group: Group, window: int, data: Mapping[str, Any]) -> Watched:
    own = reference.of(group)
    tallies = Tally.from_json(data["filling"]), Tally.from_json(data["before"])
    return Watched(
        own,
        Window(window, own.predicted, own.observed, *tallies),
        _evidence_of(window, data),
        Counter(own.losses, [float(count) for count in data["losses"]]),
        Counter(own.places, [float(count) for count in data["places"]]),
    )


def _evidence(one: Evidence) -> dict[str, Any]:
    alarmed_s = one.alarmed_s if math.isfinite(one.alarmed_s) else None
    blocks = [asdict(block) for block in one.blocks]
    return {"quiet": one.quiet, "heard": one.heard, "alarmed_s": alarmed_s, "blocks": blocks}


def _evidence_of(window: int, data: Mapping[str, Any]) -> Evidence:
    blocks = [_block_of(block) for block in data["blocks"]]
    alarmed_s = -math.inf if data["alarmed_s"] is None else float(data["alarmed_s"])
    return Evidence(window, int(data["quiet"]), int(data["heard"]), alarmed_s, blocks)


def _block_of(data: Mapping[str, Any]) -> Block:
    (by_loss, high, low), (z_loss, z_place) = map(float, data["logs"]), map(float, data["scores"])
    return Block(
        float(data["at"]), int(data["records"]), (by_loss, high, low), (z_loss, z_place),
        float(data["loss"]), float(data["log_ratio"]),
    )  # fmt: skip

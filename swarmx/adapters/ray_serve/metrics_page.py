"""Serve's own counts on the metrics pages of Ray's nodes.

Of a deployment: requests that came to a handle, and those that wait there; requests that a replica runs, and those that
it has ended. The sums of Serve's latency histograms are not read: Ray exports them from bucket midpoints, measured 75 %
too high for calls of two seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

ARRIVED, ENDED = "ray_serve_num_router_requests_total", "ray_serve_deployment_request_counter_total"
QUEUED, RUNNING = "ray_serve_deployment_queued_queries", "ray_serve_replica_processing_queries"
_WANTED = frozenset((ARRIVED, ENDED, QUEUED, RUNNING))
_LINE = re.compile(r"^(ray_serve_\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_NAMING = ("handle", "actor_id", "replica", "WorkerId", "route", "error_code")


@dataclass(slots=True)
class Counts:
    """Of one deployment. arrived, ended : source -> counter; running : replica -> calls; queued : source -> calls"""

    arrived: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    queued: dict[str, float] = field(default_factory=dict)


def read_counts(pages: Iterable[str]) -> dict[tuple[str, str], Counts]:
    """(application, deployment) -> what the pages say of it; lines that cannot be true are left out."""
    found: dict[tuple[str, str], Counts] = {}
    for page in pages:
        for line in page.splitlines():
            if not line.startswith("ray_serve_") or (match := _LINE.match(line)) is None or match[1] not in _WANTED:
                continue
            labels = dict(_LABEL.findall(match[2]))
            value = _number(match[3])
            if value is None or "deployment" not in labels or "application" not in labels:
                continue
            counts = found.setdefault((labels["application"], labels["deployment"]), Counts())
            source = "/".join(labels.get(name, "") for name in _NAMING)
            if match[1] == RUNNING:
                replica = labels.get("replica", source)
                counts.running[replica] = counts.running.get(replica, 0.0) + value
            else:
                {ARRIVED: counts.arrived, ENDED: counts.ended, QUEUED: counts.queued}[match[1]][source] = value
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

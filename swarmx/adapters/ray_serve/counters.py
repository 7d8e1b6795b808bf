"""What a router counts: readable in its process as `counts`, and as a Ray metric everywhere."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

log = logging.getLogger(__name__)
METRIC = "swarmx_router_events"


class Counters:
    """Events by name:

    routed, completed : calls that a replica accepted, and that ended; asked_again : a replica did not take a call
    fallbacks : calls for which Serve chose, because something here failed or was not ready
    owner_grants, owner_away, owner_back : calls bound by the queue owner; times that it was lost and found again
    late_predictions : calls that went on without; withdrawn : calls that were given up before they ran
    shadow_same, shadow_other : in shadow, whether Serve chose what would have been chosen here
    """

    def __init__(self, app: str, deployment: str) -> None:
        self.counts: Counter[str] = Counter()
        self._tags = {"application": app, "deployment": deployment}
        self._metric: Any = None

    def add(self, name: str, value: str = "") -> None:
        """Count one. value : why, for the log alone"""
        self.counts[name] += 1
        if value:
            log.warning("%s: %s", name, value)
        if self._metric is None:
            from ray.util import metrics

            about = "Events of the swarmx request router, by name."
            self._metric = metrics.Counter(METRIC, about, tag_keys=("event", "application", "deployment"))
        self._metric.inc(1, tags={"event": name, **self._tags})


def router_of(handle: Any) -> Any:
    """The router object behind a deployment handle of this process; None before its first call."""
    router = getattr(handle, "_router", None)
    return getattr(getattr(router, "_asyncio_router", router), "_request_router", None)

"""What the picker counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily

BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
PREFIX = "swarmx_picker_"
# name -> (what is counted, name of its label or None)
COUNTED: dict[str, tuple[str, str | None]] = {
    "picks": ("Requests that were given an endpoint.", None),
    "refusals": ("Requests that were refused, by HTTP status.", "status"),
    "overdue": ("Held requests whose time budget ran out and that were bound at once.", None),
    "fallbacks": ("Requests that the proxy served with another endpoint than the first one named.", None),
    "closed_while_held": ("Requests whose stream closed while they were held: the client left, or a timeout.", None),
    "not_carried_out": ("Decisions that a proxy cannot carry out.", None),
    "late_predictions": ("Predictions that were not ready in time.", None),
    "ended": ("Requests that ended, by status.", "status"),
    "scrape_failures": ("Scrapes of an endpoint that gave nothing usable, by reason.", "reason"),
    "dropped_records": ("Finished calls that could not be written to the log.", None),
}
Gauges = Iterable[tuple[str, str, float]]  # name, what it is, value


class _Counting(Protocol):
    def inc(self) -> None: ...


class Counters:
    """Names are those of `COUNTED`; an unknown one is a KeyError at its first use."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._families: dict[str, Any] = {
            name: Counter(PREFIX + name, about, [label] if label else [], registry=self.registry)
            for name, (about, label) in COUNTED.items()
        }
        about = "Time from the complete request to its answer, held time included."
        self.pick_s = Histogram(PREFIX + "pick_seconds", about, registry=self.registry, buckets=BUCKETS_S)
        about = "Time from a request's arrival to the end of its answer."
        self.call_s = Histogram(PREFIX + "call_seconds", about, registry=self.registry, buckets=BUCKETS_S)
        self._children: dict[tuple[str, str], _Counting] = {}

    def add(self, name: str, value: str = "") -> None:
        """Count one. value : of the name's label, from a closed set; "" where it has none"""
        child = self._children.get((name, value))
        if child is None:
            family = self._families[name]
            child = self._children[name, value] = family.labels(value) if COUNTED[name][1] else family
        child.inc()

    def total(self, name: str) -> float:
        """Sum over all labels."""
        samples = (s for metric in self._families[name].collect() for s in metric.samples)
        return sum(float(s.value) for s in samples if s.name.endswith("_total"))

    def ended(self, status: str, seconds: float) -> None:
        self.add("ended", status)
        self.call_s.observe(max(0.0, seconds))

    def show(self, gauges: Callable[[], Gauges]) -> None:
        """Show these gauges too, read whenever the page is."""
        self.registry.register(_Read(gauges))

    def text(self) -> str:
        """The page."""
        return generate_latest(self.registry).decode()


class _Read:
    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self.gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, about, value in self.gauges():
            yield GaugeMetricFamily(PREFIX + name, about, value=value)

"""Prometheus metrics of the gateway; names follow vLLM's where the thing is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from swarmx.adapters.predicting import Told

# Calls of agents last from a hundred milliseconds to tens of minutes.
LATENCY_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960, 1920)
WAIT_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960)
COVERED_LEVELS = (0.5, 0.9, 0.95, 0.99)
Rows = Iterable[tuple[tuple[str, ...], float]]
Kind = TypeVar("Kind", bound=MetricWrapperBase)


class Labelled(Generic[Kind]):
    """A metric that keeps the children it has looked up; the library takes a lock and copies the labels each time."""

    def __init__(self, metric: Kind) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], Kind] = {}

    def labels(self, *values: str) -> Kind:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values)
        return child


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series
        self.registry = registry = CollectorRegistry()
        self.ended = self._counter("swarmx_requests", "Calls that ended", "pool", "tenant", "status")
        self.refused = self._counter("swarmx_refused", "Requests refused before the queue", "code")
        self.latency = self._histogram("swarmx_e2e_request_latency_seconds", "Arrival to end", LATENCY_S, "pool")
        self.first_token = self._histogram(
            "swarmx_time_to_first_token_seconds", "Arrival to first token", WAIT_S, "pool"
        )
        self.wait = self._histogram(
            "swarmx_request_queue_time_seconds", "Arrival to dispatch", WAIT_S, "pool", "priority"
        )
        self.tokens = self._counter("swarmx_tokens", "Tokens served", "pool", "tenant", "kind")
        self.decisions = self._counter(
            "swarmx_decisions", "Decisions by what decided them", "pool", "policy", "tier", "action"
        )
        self.redispatched = self._counter(
            "swarmx_redispatches", "Calls sent again to another replica", "pool", "reason"
        )
        self.hedged = self._counter("swarmx_hedges", "Second copies of slow calls", "pool", "won")
        self.predicted = self._counter(
            "swarmx_prediction_calls", "Finished calls that had a prediction", "pool", "source"
        )
        self.covered = self._counter(
            "swarmx_prediction_covered",
            "Finished calls no longer than this quantile of their prediction",
            "pool", "source", "level",
        )  # fmt: skip
        self.predictions = Told(
            Counter("swarmx_predictions_late", "Predictions past their budget", registry=registry).inc,
            Counter(
                "swarmx_predictions_by_type",
                "Calls that the network had no time for within the budget",
                registry=registry,
            ).inc,
            Histogram(
                "swarmx_prediction_seconds",
                "Time from asking for a prediction to having it",
                buckets=WAIT_S,
                registry=registry,
            ).observe,
        )
        self.records_lost = Counter("swarmx_records_lost", "Records that could not be written", registry=registry)
        self.up = Gauge("swarmx_up", "1 while calls are accepted, 0 while draining", registry=registry)

    def _counter(self, name: str, about: str, *labels: str) -> Labelled[Counter]:
        return Labelled(Counter(name, about, labels, registry=self.registry))

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Labelled[Histogram]:
        return Labelled(Histogram(name, about, labels, buckets=buckets, registry=self.registry))

    def add_gauge(
        self, name: str, about: str, labels: tuple[str, ...], read: Callable[[], Rows], counts: bool = False
    ) -> None:
        """A gauge whose rows (label values, value) are computed when it is scraped; counts: it only grows."""
        self.registry.register(_Live(name, about, labels, read, counts))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Live(Collector):
    def __init__(self, name: str, about: str, labels: tuple[str, ...], read: Callable[[], Rows], counts: bool) -> None:
        self.name, self.about, self.labels, self.read, self.counts = name, about, labels, read, counts

    def collect(self) -> Iterable[Metric]:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family = kind(self.name, self.about, labels=self.labels)
        for labels, value in self.read():
            family.add_metric(labels, value)
        yield family

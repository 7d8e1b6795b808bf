"""What the picker counts, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_ABOUT = {
    "picks": "Requests that were given an endpoint.",
    "refusals": "Requests that were refused, by HTTP status.",
    "overdue": "Held requests whose time budget ran out and that were bound at once.",
    "fallbacks": "Requests that the proxy served with another endpoint than the first one named.",
    "closed_while_held": "Requests whose stream closed while they were held: clients that left, or a message_timeout.",
    "not_carried_out": "Decisions that a proxy cannot carry out.",
    "late_predictions": "Predictions that were not ready in time.",
    "ended": "Requests that ended, by status.",
    "scrape_failures": "Scrapes of an endpoint that gave nothing usable, by reason.",
    "dropped_records": "Finished calls that could not be written to the log.",
    "pick_seconds": "Time from the complete request to its answer, held time included.",
    "call_seconds": "Time from a request's arrival to the end of its answer.",
}


class Histogram:
    """Counts per bucket, cumulated when it is written."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def lines(self, name: str) -> Iterable[str]:
        so_far = 0
        for limit, count in zip((*BUCKETS_S, "+Inf"), self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{le="{limit}"}} {so_far}'
        yield f"{name}_sum {self.total_s}"
        yield f"{name}_count {so_far}"


class Counters:
    """Every name must stand in `_ABOUT`; an unknown one is a KeyError at its first use."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, int]] = {name: {} for name in _ABOUT if not name.endswith("_seconds")}
        self.pick_s, self.call_s = Histogram(), Histogram()

    def add(self, name: str, labels: str = "") -> None:
        """Count one. labels : as Prometheus writes them, `status="503"`, from a closed set of values"""
        row = self.values[name]
        row[labels] = row.get(labels, 0) + 1

    def total(self, name: str) -> int:
        return sum(self.values[name].values())

    def ended(self, status: str, seconds: float) -> None:
        self.add("ended", f'status="{status}"')
        self.call_s.observe(max(0.0, seconds))

    def text(self, gauges: Iterable[tuple[str, str, str, float]] = ()) -> str:
        """Everything, and the gauges given as (name, help, labels, value), rows of one name together."""
        out: list[str] = []
        for name, rows in self.values.items():
            full = f"swarmx_picker_{name}_total"
            out += [f"# HELP {full} {_ABOUT[name]}", f"# TYPE {full} counter"]
            out += [_row(full, labels, value) for labels, value in (rows or {"": 0}).items()]
        for name, histogram in (("pick_seconds", self.pick_s), ("call_seconds", self.call_s)):
            full = f"swarmx_picker_{name}"
            out += [f"# HELP {full} {_ABOUT[name]}", f"# TYPE {full} histogram", *histogram.lines(full)]
        last = ""
        for name, about, labels, value in gauges:
            full = f"swarmx_picker_{name}"
            if name != last:
                out += [f"# HELP {full} {about}", f"# TYPE {full} gauge"]
                last = name
            out.append(_row(full, labels, value))
        return "\n".join(out) + "\n"


def _row(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"

"""A replica's reports: at once when a call ends, together when many do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swarmx.adapters.ray_serve import reporting
from swarmx.adapters.ray_serve.messages import Report
from swarmx.adapters.ray_serve.replica import Book, SwarmXReplica
from swarmx.adapters.ray_serve.reporting import PAUSE_S, Reporter
from swarmx.adapters.ray_serve.states import Ended


class Engine(SwarmXReplica):
    swarmx_slots = 2


def ended(key: str) -> Ended:
    return Ended(key, "__call__", "ok", 7, 1.0, 1.0, 1.0, 1.0)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(reporting.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def reports() -> list[Report]:
    return []


@pytest.fixture
def reporter(reports: list[Report]) -> Reporter:
    made = Reporter()
    made._owner = SimpleNamespace(report=SimpleNamespace(remote=reports.append))
    return made


def test_the_end_of_a_call_is_told_at_once(reporter: Reporter, reports: list[Report], now: list[float]) -> None:
    reporter.first_token("a")
    reporter.add(ended("a"), Engine(), Book())
    (report,) = reports
    assert [e.key for e in report.ended] == ["a"]
    assert report.first_tokens == ("a",)
    assert report.stats["slots"] == 2


def test_ends_that_come_close_together_travel_together(
    reporter: Reporter, reports: list[Report], now: list[float]
) -> None:
    for key in ("a", "b", "c"):
        reporter.add(ended(key), Engine(), Book())
    assert [len(r.ended) for r in reports] == [1]
    assert reporter._news.is_set(), "the thread sends the others"
    now[0] += 2 * PAUSE_S
    reporter.add(ended("d"), Engine(), Book())
    assert [e.key for e in reports[-1].ended] == ["b", "c", "d"]


def test_an_owner_that_cannot_be_told_costs_the_call_nothing(now: list[float]) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("gone")

    reporter = Reporter()
    reporter._looked_s = now[0]
    reporter._owner = SimpleNamespace(report=SimpleNamespace(remote=broken))
    reporter.add(ended("a"), Engine(), Book())
    assert reporter._looked_s < 0, "it is looked up anew"

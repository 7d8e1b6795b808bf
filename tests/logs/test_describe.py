from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from swarmx.logs.describe import describe, spread
from swarmx.types import CallRecord


def call(name: str, start: float, end: float | None, tokens: int = 10, **more: object) -> CallRecord:
    return CallRecord(name, "m", start, "ok", finished_s=end, output_tokens=tokens, **more)  # type: ignore[arg-type]


FAN = [
    call("plan", 0, 1, workflow_id="w", max_tokens=10),
    call("a", 2, 4, 20, workflow_id="w", max_tokens=50, type="item"),
    call("b", 2, 6, 30, workflow_id="w", max_tokens=50, type="item"),
    call("merge", 7, 8, 40, workflow_id="w"),
    replace(call("lone", 10, 12, 50), status="error"),
]


def test_spreads_are_those_of_the_ok_calls() -> None:
    d = describe(FAN)
    assert d.output_tokens is not None and d.latency_s is not None
    assert (d.output_tokens.n, d.output_tokens.mean, d.output_tokens.p50, d.output_tokens.max) == (4, 25, 25, 40)
    assert d.output_tokens.cv == pytest.approx(125**0.5 / 25)
    assert (d.latency_s.mean, d.first_token_s) == (2.0, None)
    assert {k: s.mean for k, s in d.tokens_by["type"].items()} == {"": 25, "item": 25}


def test_names_caps_and_gaps_are_counted() -> None:
    d = describe(FAN)
    assert (d.calls, d.workflows, d.seconds) == (5, 2, 12)
    assert d.names["status"] == {"ok": 4, "error": 1} and d.names["type"] == {"": 3, "item": 2}
    assert d.cut_at_cap == pytest.approx(1 / 3)
    assert (d.missing["max_tokens"], d.missing["first_token_s"], d.missing["tenant"]) == (0.4, 1.0, 0.0)


def test_the_shape_of_workflows_is_told() -> None:
    shape = describe(FAN).shape
    assert (shape.branching, shape.merging, shape.widest) == (1.0, 1.0, 2)
    assert shape.tool_s is not None and shape.tool_s.mean == pytest.approx(1.0)


def test_load_adds_up_to_all_calls_and_all_time_in_flight() -> None:
    windows = describe(FAN).load
    width = 12 / len(windows)
    assert sum(w.calls for w in windows) == 5
    assert sum((w.in_flight or 0) * width for w in windows) == pytest.approx(1 + 2 + 4 + 1 + 2)


def test_a_trace_of_arrivals_has_load_but_no_latency() -> None:
    d = describe([call(str(i), float(i), None) for i in range(10)])
    assert d.latency_s is None and all(w.in_flight is None for w in d.load)
    assert d.arrival_cv == pytest.approx(0.0)


def test_one_call_is_enough() -> None:
    d = describe([call("a", 0, 0)])
    assert (d.load, d.arrival_cv, d.seconds) == ((), None, 0)


def test_an_unreadable_graph_is_told_and_the_rest_still_described() -> None:
    d = describe([call("a", 0, 1, parent_id="b", workflow_id="w"), call("c", 0, 1)])
    assert "'b', which is no call" in d.shape.problem
    assert not next(u for u in d.uses if u.purpose.startswith("replay")).possible


def test_uses_follow_from_what_is_there() -> None:
    log = [
        call(
            f"c{i}",
            i,
            i + 1.0,
            prompt=f"p{i}",
            prompt_group=f"g{i % 30}",
            type="t",
            device="cpu",
            dispatched_s=i,
            first_token_s=i + 0.5,
            workflow_id=f"w{i // 2}",
        )
        for i in range(500)
    ]
    uses = {u.purpose: u.possible for u in describe(log).uses}
    assert uses == {
        "predict output tokens from the prompt": True,
        "quantiles per type": True,
        "P95 of output tokens": True,
        "P99 of output tokens": False,
        "predict how many calls a call will cause": True,
        "fit engine speed per device": True,
        "replay under other policies": True,
    }
    bare = {
        u.purpose: u.possible for u in describe([replace(r, prompt=None, device=None, type=None) for r in log]).uses
    }
    assert not bare["predict output tokens from the prompt"] and not bare["fit engine speed per device"]


def test_a_description_is_json() -> None:
    assert json.loads(json.dumps(asdict(describe(FAN))))["calls"] == 5


def test_an_empty_sample_has_no_spread() -> None:
    assert spread([]) is None

from __future__ import annotations

from dataclasses import replace

import pytest

from swarmx.logs.check import CHECKS, check_log
from swarmx.types import CallRecord

GOOD = [
    CallRecord(
        f"c{i}",
        "m",
        float(i),
        "ok",
        workflow_id="w",
        waits_for=(f"c{i - 1}",) if i else (),
        parent_id=f"c{i - 1}" if i else None,
        workflow_arrival_s=0.0,
        prompt_tokens=20,
        cached_tokens=10,
        max_tokens=100,
        first_token_s=i + 0.2,
        finished_s=i + 0.9,
        output_tokens=12,
        embedding=b"\0\0\0\0",
        encoder_sha="e",
    )
    for i in range(30)
]


def outcomes(log: list[CallRecord]) -> dict[str, str]:
    return {check.name: check.outcome for check in check_log(log)}


def test_a_good_log_passes_every_check() -> None:
    assert set(outcomes(GOOD).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("call graph", {"parent_id": "nobody", "waits_for": ()}),
        ("causes before effects", {"arrival_s": 9.0}),
        ("parent is the last waited for", {"waits_for": ("c0", "c10"), "parent_id": "c0"}),
        ("one arrival per workflow", {"workflow_arrival_s": 1.0}),
        ("ends", {"finished_s": None}),
        ("answers", {"output_tokens": 0}),
        ("cached within prompt", {"cached_tokens": 21}),
        ("embeddings", {"embedding": b"\0\0"}),
    ],
)
def test_one_bad_call_fails_its_check(name: str, change: dict[str, object]) -> None:
    log = [replace(r, **change) if i == 11 else r for i, r in enumerate(GOOD)]  # type: ignore[arg-type]
    assert outcomes(log)[name] == "failed"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("answers cut at the cap", {"max_tokens": 12}),
        ("latency in seconds", {"finished_s": 1e6, "first_token_s": None}),
        ("time per token", {"first_token_s": 0.0, "finished_s": 1e6}),
    ],
)
def test_a_log_that_is_off_as_a_whole_fails(name: str, change: dict[str, object]) -> None:
    assert outcomes([replace(r, **change) for r in GOOD])[name] == "failed"  # type: ignore[arg-type]


def test_a_bare_trace_skips_what_it_cannot_show_and_fails_nothing() -> None:
    found = outcomes([CallRecord(str(i), "m", float(i), "ok", output_tokens=5) for i in range(5)])
    assert set(found) == set(CHECKS) and set(found.values()) == {"ok", "skipped"}


def test_each_check_is_one_line() -> None:
    assert all("\n" not in check.detail for check in check_log(GOOD))

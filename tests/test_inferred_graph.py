"""Patterns of call types from a log, and what they say about reuse and cache lifetimes."""

from __future__ import annotations

import numpy as np
import pytest

from swarmx.inferred_graph import cache_ttl_s, infer
from swarmx.types import CallRecord


def log() -> list[CallRecord]:
    """plan -> code (9 of 10) or search; code -> end; each code's prompt is 50 tokens longer than what was said."""
    out = []
    for i in range(50):
        kind = "search" if i % 10 == 0 else "code"
        out.append(CallRecord(f"p{i}", "m", 0.0, "ok", type="plan", prompt_tokens=100, output_tokens=50))
        out.append(
            CallRecord(f"c{i}", "m", 1.0, "ok", type=kind, parent_id=f"p{i}", prompt_tokens=200, output_tokens=10)
        )
    out.append(CallRecord("bad", "m", 0.0, "error", type="plan"))
    return out


def test_the_next_step_is_named_only_when_it_is_sure_enough() -> None:
    graph = infer(log())
    assert graph.next_type("plan") == "code"
    assert graph.patterns["plan"].next == pytest.approx({"code": 0.9, "search": 0.1})
    assert graph.next_type("plan", confidence=0.95) is None
    assert graph.next_type("code") is None
    assert graph.next_type("unseen") is None


def test_reuse_is_the_share_of_the_next_prompt_that_is_cached() -> None:
    graph = infer(log())
    assert graph.reuse("plan", 150.0) == pytest.approx(150 / 200)
    assert graph.reuse("code", 150.0) == 0.0
    assert graph.reuse("plan", 0.0) == 0.0


def test_caches_are_kept_shorter_when_memory_is_short_and_never_longer_than_five_minutes() -> None:
    assert cache_ttl_s("code", 0.5) == pytest.approx(2.4)
    assert cache_ttl_s("code", 0.8) == pytest.approx(2.4 * 0.75)
    assert cache_ttl_s("code", 1.0) == pytest.approx(1.2)
    assert cache_ttl_s("web", 0.0, [500.0] * 30) == 300.0
    seen = np.random.default_rng(0).lognormal(0.0, 1.0, 4000)
    assert cache_ttl_s("web", 0.0, seen.tolist()) == pytest.approx(np.quantile(seen, 0.95), rel=0.1)
    with pytest.raises(ValueError, match="no prior for tool 'magic'; known are code"):
        cache_ttl_s("magic", 0.0)

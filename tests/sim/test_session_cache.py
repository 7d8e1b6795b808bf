"""A cache that evicts by session: who has ended goes first, who waits for a tool is kept, nothing is counted twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.prefix_cache import Hint, PrefixCache
from swarmx.sim.session_cache import RECENCY_ALONE, WORKFLOW_AWARE, SessionCache, cache_of


def filled(weights: tuple[float, float, float], holds: bool, hints: list[Hint]) -> SessionCache:
    """Sessions of four blocks each, left one after another."""
    cache = SessionCache(1, 100, weights, holds)
    for i, hint in enumerate(hints):
        blocks = list(range(10 * i, 10 * i + 4))
        cache.acquire(blocks)
        cache.leave(blocks, (), hint)
    return cache


def left(cache: PrefixCache, sessions: int) -> list[int]:
    return [cache.present(list(range(10 * i, 10 * i + 4)))[0] for i in range(sessions)]


def test_a_session_that_has_ended_goes_before_one_that_was_left_earlier() -> None:
    hints = [Hint("a", 0.0, reuse=1.0), Hint("b", 5.0, reuse=0.0), Hint("c", 6.0, reuse=1.0)]
    aware, plain = filled(WORKFLOW_AWARE, False, hints), filled(RECENCY_ALONE, False, hints)
    for cache in (aware, plain):
        cache.shrink(8, now=10.0)
    assert left(aware, 3) == [4, 0, 4] and left(plain, 3) == [0, 4, 4]


def test_a_session_is_held_for_its_tool_and_no_longer() -> None:
    hints = [Hint("a", 0.0, pause_s=20.0), Hint("b", 5.0, pause_s=1.0)]
    for now, expected in ((10.0, [4, 0]), (21.0, [0, 4])):
        cache = filled(RECENCY_ALONE, True, hints)
        cache.shrink(4, now=now)
        assert left(cache, 2) == expected


def test_a_held_session_goes_when_nothing_else_is_left() -> None:
    cache = filled(RECENCY_ALONE, True, [Hint("a", 0.0, pause_s=100.0), Hint("b", 1.0, pause_s=100.0)])
    cache.shrink(2, now=2.0)
    assert left(cache, 2) == [0, 2]


def test_a_full_memory_halves_the_time_of_holding() -> None:
    for capacity, held in ((100, True), (4, False)):
        cache = SessionCache(1, capacity, RECENCY_ALONE, True)
        cache.acquire([1, 2, 3, 4])
        cache.leave([1, 2, 3, 4], (), Hint("a", 0.0, pause_s=10.0))
        assert (cache._sessions["a"].until_s > 6.0) is held


def test_the_end_of_a_context_is_forgotten_first_its_answer_before_its_prompt() -> None:
    for cache in (PrefixCache(1), SessionCache(1, 100, WORKFLOW_AWARE, True)):
        cache.acquire([1, 2, 3])
        cache.leave([1, 2, 3], [4, 5], Hint("a"))
        cache.shrink(4, now=1.0)
        assert cache.present([1, 2, 3, 4, 5])[0] == 4
        cache.shrink(2, now=1.0)
        assert cache.present([1, 2, 3, 4, 5])[0] == 2


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.floats(0, 1), st.integers(0, 30)), max_size=30),
    st.booleans(),
)
def test_blocks_are_here_once_and_fit_the_room(steps: list[tuple[int, int, float, int]], holds: bool) -> None:
    cache = SessionCache(1, 40, WORKFLOW_AWARE, holds)
    for now, (session, length, reuse, room) in enumerate(steps):
        blocks = [100, *range(10 * session, 10 * session + length)]  # all share their first block
        cache.acquire(blocks)
        cache.leave(blocks, [10 * session + 8], Hint(f"s{session}", float(now), reuse, 3.0))
        cache.shrink(room, float(now))
        owned = [block for s in cache._sessions.values() for block in s.blocks]
        assert sorted(owned) == sorted(cache._idle) and len(owned) <= room
        assert set(cache._owner) == set(owned) and not cache._used


def test_a_replica_has_the_cache_that_its_spec_names() -> None:
    assert type(cache_of(ReplicaSpec("r", block_tokens=16))) is PrefixCache
    assert cache_of(ReplicaSpec("r", block_tokens=16, evicts="wa_lru")).weights == WORKFLOW_AWARE  # type: ignore[attr-defined]
    assert cache_of(ReplicaSpec("r", block_tokens=16, holds_sessions=True)).weights == RECENCY_ALONE  # type: ignore[attr-defined]

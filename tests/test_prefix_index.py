"""The prefix index against a plain model of it."""

from hypothesis import given
from hypothesis import strategies as st

from swarmx.prefix import PrefixIndex, block_hashes

PROMPTS = st.lists(st.integers(0, 2), max_size=12)


def test_equal_prefixes_share_hashes_and_a_changed_block_changes_all_that_follow() -> None:
    a = block_hashes([1, 2, 3, 4, 5, 6, 7], 2)
    b = block_hashes([1, 2, 9, 4, 5, 6], 2)
    assert len(a) == 3
    assert a[0] == b[0]
    assert set(a[1:]).isdisjoint(b[1:])
    assert block_hashes(b"abcdef", 3) == block_hashes(b"abcdefg", 3)


@given(steps=st.lists(st.tuples(st.integers(0, 2), PROMPTS, st.booleans()), max_size=40), probe=PROMPTS)
def test_held_prefixes_are_those_of_the_calls_that_run(steps: list, probe: list[int]) -> None:  # type: ignore[type-arg]
    index = PrefixIndex(block_tokens=2)
    index.set_replicas([None, None, None], [1e6] * 3)
    running: list[tuple[int, tuple[int, ...]]] = []
    seen: list[set[int]] = [set(), set(), set()]
    for replica, prompt, ends in steps:
        if ends and running:
            index.end(*running.pop())
            continue
        blocks = block_hashes(prompt, 2)
        index.start(replica, blocks)
        running.append((replica, blocks))
        seen[replica].update(blocks)
    wanted = block_hashes(probe, 2)
    for replica in range(3):
        live = {b for r, blocks in running for b in blocks if r == replica}
        for found, held in ((index.live(wanted), live), (index.cached(wanted), seen[replica])):
            depth = next((d for d, block in enumerate(wanted) if block not in held), len(wanted))
            assert found[replica] == 2 * depth


@given(prompts=st.lists(PROMPTS, min_size=1, max_size=30))
def test_the_cache_stays_within_its_capacity_once_calls_have_ended(prompts: list[list[int]]) -> None:
    index = PrefixIndex(block_tokens=2)
    index.set_replicas([None], [8.0])
    for prompt in prompts:
        blocks = block_hashes(prompt, 2)
        index.start(0, blocks)
        index.end(0, blocks)
        index.start(0, ())
    assert len(index._idle[0]) <= 4
    assert not index._running


def test_a_call_that_never_ran_leaves_nothing_behind() -> None:
    index = PrefixIndex(block_tokens=1)
    index.set_replicas([None], [100.0])
    index.start(0, (1, 2, 3))
    index.end(0, (1, 2, 3), keep=0)
    assert index.cached((1, 2, 3)).tolist() == [0.0]


def test_a_call_that_never_ran_takes_nothing_away() -> None:
    index = PrefixIndex(block_tokens=1)
    index.set_replicas([None], [100.0])
    assert index.start(0, (1, 2)) == 0
    index.end(0, (1, 2))
    assert index.start(0, (1, 2, 3)) == 2
    index.end(0, (1, 2, 3), keep=2)
    assert index.cached((1, 2, 3)).tolist() == [2.0]


def test_the_end_of_the_oldest_prompt_goes_first() -> None:
    index = PrefixIndex(block_tokens=1)
    index.set_replicas([None], [5.0])
    for blocks in ((1, 2, 3), (7, 8)):
        index.start(0, blocks)
        index.end(0, blocks)
    index.start(0, (9, 10))
    assert [index.cached(blocks)[0] for blocks in ((1, 2, 3), (7, 8), (9, 10))] == [1.0, 2.0, 2.0]


def test_a_replica_that_stays_keeps_its_blocks_when_others_come_and_go() -> None:
    index = PrefixIndex(block_tokens=1)
    index.set_replicas([None, None], [100.0, 100.0])
    index.start(1, (7,))
    index.set_replicas([None, 1, None], [100.0] * 3)
    assert index.cached((7,)).tolist() == [0.0, 1.0, 0.0]


@given(
    held=st.lists(st.tuples(st.integers(0, 2), PROMPTS, st.booleans()), max_size=20),
    old=st.lists(st.sampled_from([None, 0, 1, 2]), max_size=5).filter(
        lambda old: len({j for j in old if j is not None}) == sum(j is not None for j in old)
    ),
    probe=PROMPTS,
)
def test_replicas_keep_what_they_hold_wherever_they_stand(
    held: list[tuple[int, list[int], bool]], old: list[int | None], probe: list[int]
) -> None:
    index = PrefixIndex(block_tokens=2)
    index.set_replicas([None, None, None], [1e6] * 3)
    for replica, prompt, runs in held:
        index.start(replica, block_hashes(prompt, 2))
        if not runs:
            index.end(replica, block_hashes(prompt, 2))
    blocks = block_hashes(probe, 2)
    before = index.cached(blocks).tolist(), index.live(blocks).tolist()
    for moved in (old, list(range(len(old))), [*range(len(old)), None]):  # then the same ones, then one more
        index.set_replicas(moved, [1e6] * len(moved))
        wanted = [[0.0 if j is None else depths[j] for j in moved] for depths in before]
        assert [index.cached(blocks).tolist(), index.live(blocks).tolist()] == wanted
        before = wanted[0], wanted[1]

"""Blocks of prompts: whatever goes on from a prompt begins with its blocks."""

from hypothesis import given
from hypothesis import strategies as st

from swarmx.adapters.prompts import MOST_BLOCKS, prefix_blocks, text_of

TEXT = st.text(max_size=1500)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT}),
    min_size=1,
    max_size=5,
)


@given(before=MESSAGES, after=MESSAGES)
def test_a_conversation_begins_with_the_blocks_of_its_earlier_turns(before: list, after: list) -> None:  # type: ignore[type-arg]
    first, second = prefix_blocks(tuple(before)), prefix_blocks((*before, *after))
    assert second[: len(first)] == first


@given(before=TEXT, after=TEXT)
def test_a_text_that_goes_on_begins_with_the_blocks_of_what_it_was(before: str, after: str) -> None:
    assert prefix_blocks(before + after)[: len(prefix_blocks(before))] == prefix_blocks(before)


def test_other_beginnings_have_other_blocks_and_their_number_is_bounded() -> None:
    one, other = prefix_blocks("a" * 300_000), prefix_blocks("b" + "a" * 300_000)
    assert len(one) == MOST_BLOCKS
    assert one[0] != other[0]
    assert prefix_blocks("short") == ()


def test_content_of_any_shape_is_read_as_text() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url"}, "no part"]
    assert text_of(({"role": "user", "content": parts},)) == "see\n"
    assert text_of(({"role": "system", "content": "be brief"}, {"content": 5})) == "system: be brief\nuser: "

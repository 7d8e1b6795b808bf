"""A text read in pieces says what the whole of it says, and a prompt that grows is read where it is new."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmx.predict import reading
from swarmx.predict.cache import ByteCache
from swarmx.predict.features import Memory, features
from swarmx.predict.reading import BUCKETS, GRAMS, Piece, Signs, cuts, grams, last_turn, pieces_of, text_counts
from swarmx.predict.text import HEAD_CHARS, clip
from swarmx.types import Call

PARTS = [
    "user: ", "\n", "\n\nuser: ", "\nassistant: ", "- ", "1. ", "\n * x", " ", "abc", "Éa", "a.B", "3.4,5", "?\n",
    "'q'", "\u2028", "\x85", "{x}", "東京", "_a", "plan seven trips", "! ",
]  # fmt: skip
TEXTS = st.tuples(st.lists(st.sampled_from(PARTS), max_size=40), st.sampled_from([1, 20, 150])).map(
    lambda drawn: "".join(drawn[0]) * drawn[1]
)


PLAIN = st.text(st.sampled_from(" \n\t\x1c\x1f\x0b.,;:!?-*()[]{}|\\`'\"_=<>0123aAbBzZ") | st.characters(codec="ascii"))


def words_of(text: str) -> list[bytes]:
    """Words in lower case, one by one."""
    return [word.lower().encode() for word in re.findall(r"[^\W_]+", text)]


@given(PLAIN | st.lists(st.sampled_from([part for part in PARTS if part.isascii()]), max_size=60).map("".join))
@example("1.2,3 4. \n\n 5) 6.\n- \n-\n*\t* x\n   \n7.7. a1b")
def test_compiled_reading_of_plain_text_finds_what_the_expressions_find(text: str) -> None:
    quick, slow = reading._plain(text), reading._any(text)
    assert quick.signs == slow.signs
    np.testing.assert_array_equal(quick.hashes, slow.hashes)
    piece = Piece(text)
    assert [piece.word(i) for i in range(piece.count)] == slow.words == words_of(text)


@given(TEXTS, st.booleans())
def test_pieces_add_up_to_the_whole(text: str, stems: bool) -> None:
    clipped = clip(text)
    begins, turns = last_turn(clipped)
    before, last = pieces_of(clipped, len(text), begins, ByteCache(1 << 20), stems)
    assert "".join(piece.text for piece in (*before, *last)) == clipped
    whole, own = Piece(clipped), Piece(clipped[begins:])
    assert Signs.total([Signs(), *(piece.signs for piece in last)]) == own.signs
    found = np.expm1(text_counts(before, last, len(text), len(turns)))
    signs = whole.signs
    wanted = [
        len(text), signs.words, len(set(words_of(clipped))), signs.letters / max(signs.words, 1), signs.numbers,
        signs.commas, signs.questions, signs.colons, signs.quotes, signs.breaks + 1, signs.marks, signs.code,
        signs.sentences,
        signs.capitals, signs.non_ascii, len(clipped) - begins, own.signs.words,
    ]  # fmt: skip
    np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-4)  # float32 logarithms


@given(TEXTS)
def test_grams_are_the_most_frequent_words_and_pairs(text: str) -> None:
    words = words_of(text)
    words = words if len(words) <= 512 else words[:256] + words[-256:]
    times = Counter(words)
    times.update(b"%s %s" % pair for pair in pairwise(words))
    wanted: dict[int, float] = {}
    for gram, n in times.most_common(GRAMS):
        bucket = zlib.crc32(gram) % BUCKETS
        wanted[bucket] = wanted.get(bucket, 0.0) + 1 + math.log(n)
    ids, weights = grams([Piece(text[a:b]) for a, b in pairwise(cuts(text, len(text)))])
    assert ids.tolist() == list(wanted)
    np.testing.assert_allclose(weights, list(wanted.values()), rtol=1e-5)


@pytest.mark.parametrize("text", ["user: - one", "user:   2) two\n", "user: \n- three", "system: x\nuser: *\t"])
def test_a_list_mark_after_a_turn_counts_in_the_turn_and_not_in_the_whole(text: str) -> None:
    begins, turns = last_turn(text)
    before, last = pieces_of(text, len(text), begins, None)
    found = np.expm1(text_counts(before, last, len(text), len(turns))).round().astype(int)
    assert found[10] == Piece(text).signs.marks and found[18] == Piece(text[begins:]).signs.marks


def test_a_growing_prompt_is_read_where_it_is_new() -> None:
    rng, words = np.random.default_rng(0), ["plan", "a trip", "to seven", "musées,", "cost"]
    memory, text = Memory(1 << 22), " ".join(rng.choice(words, 3000).tolist())
    read: list[int] = []
    for turn in range(12):
        text += f"\nassistant: {' '.join(rng.choice(words, 60).tolist())}\nuser: go on {turn}"
        before = memory.pieces.used_bytes
        features([Call("c", "m", 0.0, text)], memory)
        read.append(memory.pieces.used_bytes - before)
    assert max(read[1:]) < 0.4 * read[0]  # head and tail at first, then the new turn and the edges of the window
    assert len(clip(text)) > HEAD_CHARS and memory.pieces.used_bytes < 1 << 22


def test_plain_text_is_not_cut_unless_stems_are_asked_for() -> None:
    text = "plan a trip to seven museums\n" * 100
    assert [len(part) for part in pieces_of(text, len(text), 58, None)] == [1, 1]
    assert sum(len(part) for part in pieces_of(text, len(text), 58, None, stems=True)) > 5

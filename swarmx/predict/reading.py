"""What one text says, read in pieces that can be remembered: a prompt that has grown costs its new part.

Signs add up over pieces that are cut where none can straddle: after a line break, or between white space and a letter.
The cuts lie near multiples of `STEP` characters of the whole prompt, so they stay in place while it grows at its end,
even though `clip` moves its window.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.cache import ByteCache
from swarmx.predict.text import HEAD_CHARS
from swarmx.predict.tools import stems

Floats = NDArray[np.float32]
Hashes = NDArray[np.uint32]
STEP = 512  # characters from one place where a cut is looked for to the next
WITHIN = 200  # characters behind such a place in which it is looked for
BUCKETS = 16384  # hashed n-grams; on real function-calling prompts 2,048 lost 0.03 R2, 65,536 won 0.005
GRAMS = 192  # n-grams kept of one prompt, most frequent first
WORDS = 512  # words read of one prompt, half from each end
PLACE_BITS = 10  # 1,024 places are more than there are words and pairs together
PLACE = (1 << PLACE_BITS) - 1
LOGS = np.log(np.maximum(np.arange(PLACE + 1), 1)).astype(np.float32)
ROLES = ("system", "developer", "user", "assistant", "tool")  # turns begin so, as `text_of` writes messages

_seam = re.compile(r"(?<=\n)|(?<=\s)(?=[A-Za-z])")
_turn = re.compile(rf"\n({'|'.join(ROLES)}): ")
_word = re.compile(r"[^\W_]+", re.UNICODE)
_number = re.compile(r"\d+(?:[.,]\d+)*")
_mark = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_first_mark = re.compile(r"[^\S\n]*(?:[-*•]|\d+[.)])\s")
_sentence = re.compile(r"[.!?](?:\s|$)")
_CODE = "{}<>=;()[]`|\\"


class Signs(NamedTuple):
    """How often each occurs in a text; letters : characters in words; breaks : of lines; capitals : words so begun"""

    words: int = 0
    letters: int = 0
    numbers: int = 0
    commas: int = 0
    questions: int = 0
    colons: int = 0
    quotes: int = 0
    breaks: int = 0
    marks: int = 0
    code: int = 0
    sentences: int = 0
    capitals: int = 0
    non_ascii: int = 0

    @classmethod
    def total(cls, parts: Sequence[Signs]) -> Signs:
        return cls(*map(sum, zip(*parts, strict=True)))


class Piece:
    """One stretch of text, read. signs : its own; words : of it, in lower case, UTF-8"""

    def __init__(self, text: str) -> None:
        words = _word.findall(text)
        self.text = text
        self.words: list[bytes] = " ".join(words).lower().encode("utf-8", "replace").split(b" ") if words else []
        self.signs = Signs(
            len(words), len("".join(words)), len(_number.findall(text)), text.count(","), text.count("?"),
            text.count(":"), text.count('"') + text.count("'"), text.count("\n"), len(_mark.findall(text)),
            sum(map(text.count, _CODE)), len(_sentence.findall(text)), sum([word[0].isupper() for word in words]),
            0 if text.isascii() else sum(ord(c) > 127 for c in text),
        )  # fmt: skip

    @cached_property
    def hashes(self) -> tuple[Hashes, Hashes]:
        """CRC-32 of each word, (n,), and of it with the one before it and a blank between; the first has none, 0."""
        singles = list(map(zlib.crc32, self.words))
        after = map(zlib.crc32, [b" " + word for word in self.words[1:]], singles)
        return np.array(singles, np.uint32), np.array([0, *after][: len(singles)], np.uint32)

    @cached_property
    def distinct(self) -> frozenset[bytes]:
        return frozenset(self.words)

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems(self.text)

    @property
    def bytes(self) -> int:
        """About what it takes in memory."""
        return 600 + len(self.text) + 80 * len(self.words)


def pieces_of(
    text: str, characters: int, begins: int, known: ByteCache[Piece] | None
) -> tuple[list[Piece], list[Piece]]:
    """A clipped text in pieces: of what stands before `begins`, and of the rest.

    characters : of the text before it was clipped; known : pieces that were read before; new ones are added
    """
    edges = sorted({*cuts(text, characters), begins})
    found = [_piece(text[a:b], known if b < len(text) else None) for a, b in pairwise(edges)]
    turn = edges.index(begins)
    return found[:turn], found[turn:]


def _piece(text: str, known: ByteCache[Piece] | None) -> Piece:
    """The last piece of a prompt grows with it, and is not worth remembering."""
    found = known.get(text) if known is not None else None
    if found is None:
        found = Piece(text)
        if known is not None:
            known.put(text, found, found.bytes)
    return found


def cuts(text: str, characters: int) -> list[int]:
    """Where the pieces of a clipped text begin, and its end; the head of a longer text is one of them, as it stays."""
    clipped = len(text) != characters
    begin, dropped = (HEAD_CHARS + 1, characters - len(text)) if clipped else (0, 0)  # `clip` puts a line break there
    out = [0, begin] if clipped else [0]
    for near in range(begin + STEP - (begin + dropped) % STEP, len(text), STEP):
        found = _seam.search(text, near, near + WITHIN)
        if found and out[-1] < found.start() < len(text):
            out.append(found.start())
    return [*out, len(text)]


def last_turn(text: str) -> tuple[int, list[str]]:
    """Where what was said last begins, 0 without turns, and whose turns there are."""
    first = next((role for role in ROLES if text.startswith(f"{role}: ")), None)
    turns = [(turn.end(), turn[1]) for turn in _turn.finditer(text)]
    begins = turns[-1][0] if turns else len(first) + 2 if first else 0
    return begins, [*([first] if first else []), *(role for _, role in turns)]


def text_counts(before: Sequence[Piece], last: Sequence[Piece], characters: int, turns: int) -> Floats:
    """log(1 + count) of a text's signs, in the order of `features.COUNTS` before `has_parent`.

    before, last : its pieces before its last turn and of that turn; characters : before it was clipped; turns : of
        all roles
    """
    own = Signs.total([piece.signs for piece in last])
    whole = Signs.total([own, *(piece.signs for piece in before)])
    marks = whole.marks - bool(before and _first_mark.match(last[0].text if last else ""))  # no line begins there
    distinct = len(frozenset().union(*(piece.distinct for piece in (*before, *last))))
    found = [
        characters, whole.words, distinct, whole.letters / max(whole.words, 1), whole.numbers, whole.commas,
        whole.questions, whole.colons, whole.quotes, whole.breaks + 1, marks, whole.code, whole.sentences,
        whole.capitals, whole.non_ascii,
        sum(len(piece.text) for piece in last), own.words, own.breaks + 1, own.marks, own.questions, own.commas,
        own.capitals, turns,
    ]  # fmt: skip
    return np.log1p(np.array(found, dtype=np.float32))


def grams(pieces: Sequence[Piece]) -> tuple[NDArray[np.int64], Floats]:
    """Buckets of words and word pairs and 1 + log(frequency) of each, at most `GRAMS`, the most frequent ones first."""
    hashes = _hashes(_ends(pieces))
    if not len(hashes):
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    places = np.arange(len(hashes))
    keys = (hashes.astype(np.int64) << PLACE_BITS) | places  # one sort of plain numbers, twice: the fastest
    keys.sort()
    found = keys >> PLACE_BITS
    starts = np.concatenate((found[:1] == found[:1], found[1:] != found[:-1])).nonzero()[0]
    times = np.concatenate((starts[1:], [len(found)])) - starts
    best = ((PLACE - times) << PLACE_BITS) | (keys[starts] & PLACE)  # of equally frequent ones those that come first
    best.sort()
    best = best[:GRAMS]
    ids = hashes[best & PLACE].astype(np.int64) % BUCKETS
    weights = 1 + LOGS[PLACE - (best >> PLACE_BITS)]
    if len(set(ids.tolist())) == len(ids):
        return ids, weights
    bag: dict[int, float] = {}
    for bucket, weight in zip(ids.tolist(), weights.tolist(), strict=True):
        bag[bucket] = bag.get(bucket, 0.0) + weight
    return np.array(list(bag), np.int64), np.array(list(bag.values()), np.float32)


def _ends(pieces: Sequence[Piece]) -> list[tuple[Piece, int, int]]:
    """Pieces with the stretch of their words that is read: all, or `WORDS` / 2 from each end."""
    total = sum([len(piece.words) for piece in pieces])
    if total <= WORDS:
        return [(piece, 0, len(piece.words)) for piece in pieces if piece.words]
    out, at, late = [], 0, total - WORDS // 2
    for piece in pieces:
        n = len(piece.words)
        if at < WORDS // 2 and n:
            out.append((piece, 0, min(n, WORDS // 2 - at)))
        if at + n > late and n:
            out.append((piece, max(0, late - at), n))
        at += n
    return out


def _hashes(ends: Sequence[tuple[Piece, int, int]]) -> Hashes:
    """Hashes of the words read and then of the pairs of them, (2 n - 1,)."""
    singles = np.concatenate([piece.hashes[0][a:b] for piece, a, b in ends] or [np.zeros(0, np.uint32)])
    pairs = np.concatenate([piece.hashes[1][a:b] for piece, a, b in ends] or [np.zeros(0, np.uint32)])
    at = 0
    for piece, a, b in ends:
        if at:
            pairs[at] = zlib.crc32(b" " + piece.words[a], int(singles[at - 1]))
        at += b - a
    return np.concatenate((singles, pairs[1:]))

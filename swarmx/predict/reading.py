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
from swarmx.predict.kernel_text import CODE, distinct, frequent, scan
from swarmx.predict.text import HEAD_CHARS
from swarmx.predict.tools import stems

Floats = NDArray[np.float32]
Hashes = NDArray[np.uint32]
STEP = 512  # characters from one place where a cut is looked for to the next
WITHIN = 200  # characters behind such a place in which it is looked for
BUCKETS = 16384  # hashed n-grams; on real function-calling prompts 2,048 lost 0.03 R2, 65,536 won 0.005
GRAMS = 192  # n-grams kept of one prompt, most frequent first
WORDS = 512  # words read of one prompt, half from each end
WEIGHTS = 1 + np.log(np.maximum(np.arange(2 * WORDS), 1)).astype(np.float32)  # of what occurs so many times
NONE = np.zeros((2, 0), np.uint32)
ROLES = ("system", "developer", "user", "assistant", "tool")  # turns begin so, as `text_of` writes messages

_seam = re.compile(r"(?<=\n)|(?<=\s)(?=[A-Za-z])")
_turn = re.compile(rf"\n({'|'.join(ROLES)}): ")
_word = re.compile(r"[^\W_]+", re.UNICODE)
_number = re.compile(r"\d+(?:[.,]\d+)*")
_mark = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_first_mark = re.compile(r"[^\S\n]*(?:[-*•]|\d+[.)])\s")
_sentence = re.compile(r"[.!?](?:\s|$)")


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
    """One stretch of text, read. signs : its own

    hashes : (2, W) uint32, CRC-32 of each of its W words in lower case, in UTF-8, and of that with the word before it
        and a blank in front; the first has none before it, 0
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._read = scanned = _plain(text) if text.isascii() else _any(text)
        self.signs, self.hashes = scanned.signs, scanned.hashes

    def word(self, place: int) -> bytes:
        """In lower case, UTF-8."""
        words = self._read.words
        if isinstance(words, list):
            return words[place]
        start, end = words[:, place]
        return self.text[start:end].lower().encode()

    @property
    def count(self) -> int:
        """Of its words."""
        return len(self.hashes[0])

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems(self.text)

    @property
    def bytes(self) -> int:
        """About what it takes in memory."""
        return 900 + len(self.text) + (16 if self.text.isascii() else 60) * self.count


class Scanned(NamedTuple):
    """words : themselves, or where they start and end, (2, W)"""

    signs: Signs
    hashes: Hashes
    words: list[bytes] | NDArray[np.int32]


def _plain(text: str) -> Scanned:
    """ASCII, compiled; the same as `_any`."""
    counts, bounds, hashes = scan(np.frombuffer(text.encode(), np.uint8))
    return Scanned(Signs(*counts.tolist()), hashes, bounds)


def _any(text: str) -> Scanned:
    found = _word.findall(text)
    words = " ".join(found).lower().encode("utf-8", "replace").split(b" ") if found else []
    signs = Signs(
        len(found), len("".join(found)), len(_number.findall(text)), text.count(","), text.count("?"),
        text.count(":"), text.count('"') + text.count("'"), text.count("\n"), len(_mark.findall(text)),
        sum(map(text.count, CODE)), len(_sentence.findall(text)), sum([word[0].isupper() for word in found]),
        0 if text.isascii() else sum(ord(c) > 127 for c in text),
    )  # fmt: skip
    alone = list(map(zlib.crc32, words))
    after = [0, *map(zlib.crc32, [b" " + word for word in words[1:]], alone)][: len(words)]
    return Scanned(signs, np.array([alone, after], np.uint32), words)


def pieces_of(
    text: str, characters: int, begins: int, known: ByteCache[Piece] | None, stems: bool = False
) -> tuple[list[Piece], list[Piece]]:
    """A clipped text in pieces: of what stands before `begins`, and of the rest.

    characters : of the text before it was clipped; known : pieces that were read before; new ones are added
    stems : of the pieces will be asked for; where not, plain text is read sooner than remembered, and not cut
    """
    small = stems or not text.isascii()
    edges = sorted({*(cuts(text, characters) if small else (0, len(text))), begins})
    found = [_piece(text[a:b], known if small and b < len(text) else None) for a, b in pairwise(edges)]
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
    different = distinct(np.concatenate([NONE[0], *(piece.hashes[0] for piece in (*before, *last))]))  # by their CRC-32
    found = [
        characters, whole.words, different, whole.letters / max(whole.words, 1), whole.numbers, whole.commas,
        whole.questions, whole.colons, whole.quotes, whole.breaks + 1, marks, whole.code, whole.sentences,
        whole.capitals, whole.non_ascii,
        sum(len(piece.text) for piece in last), own.words, own.breaks + 1, own.marks, own.questions, own.commas,
        own.capitals, turns,
    ]  # fmt: skip
    return np.log1p(np.array(found, dtype=np.float32))


def grams(pieces: Sequence[Piece]) -> tuple[NDArray[np.int64], Floats]:
    """Buckets of words and word pairs and 1 + log(frequency) of each, at most `GRAMS`, the most frequent ones first."""
    ids, weights = frequent(_hashes(_ends(pieces)), GRAMS, BUCKETS, WEIGHTS)
    return ids, weights


def _ends(pieces: Sequence[Piece]) -> list[tuple[Piece, int, int]]:
    """Pieces with the stretch of their words that is read: all, or `WORDS` / 2 from each end."""
    total = sum([piece.count for piece in pieces])
    if total <= WORDS:
        return [(piece, 0, piece.count) for piece in pieces if piece.count]
    out, at, late = [], 0, total - WORDS // 2
    for piece in pieces:
        n = piece.count
        if at < WORDS // 2 and n:
            out.append((piece, 0, min(n, WORDS // 2 - at)))
        if at + n > late and n:
            out.append((piece, max(0, late - at), n))
        at += n
    return out


def _hashes(ends: Sequence[tuple[Piece, int, int]]) -> Hashes:
    """Hashes of the n words read and then of the pairs of them, (2 n - 1,)."""
    alone, after = np.concatenate([NONE, *(piece.hashes[:, a:b] for piece, a, b in ends)], axis=1)
    at = 0
    for piece, a, b in ends:
        if at:
            after[at] = zlib.crc32(b" " + piece.word(a), int(alone[at - 1]))
        at += b - a
    return np.concatenate((alone, after[1:]))

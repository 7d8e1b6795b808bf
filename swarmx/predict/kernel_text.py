"""Compiled reading of plain ASCII text, byte by byte; `swarmx.predict.reading` says what is read, and why.

The same as its regular expressions find, at a twentieth of their time: reading was half of a prediction.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
from numba import njit

CODE: Final = "{}<>=;()[]`|\\"
_ALNUM, _DIGIT, _UPPER, _SPACE, _CODE, _STOP, _MARK = 1, 2, 4, 8, 16, 32, 64
_NEWLINE, _BLANK, _DOT, _COMMA, _CLOSED = 10, 32, 46, 44, 41
_ONES = 0xFFFFFFFF
# places in the counts that `scan` returns, in the order of `reading.Signs`
(
    WORDS, LETTERS, NUMBERS, COMMAS, QUESTIONS, COLONS, QUOTES, BREAKS, MARKS, CODES, SENTENCES, CAPITALS, NON_ASCII,
    SIGNS,
) = range(14)  # fmt: skip


def _kinds() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    found = np.zeros(128, np.uint8)
    for code in range(128):
        c = chr(code)
        found[code] = (
            _ALNUM * c.isalnum() + _DIGIT * c.isdigit() + _UPPER * c.isupper() + _SPACE * c.isspace()
            + _CODE * (c in CODE) + _STOP * (c in ".!?") + _MARK * (c in "-*")
        )  # fmt: skip
    return found


_KINDS = _kinds()
_LOWER = np.array([ord(chr(code).lower()) for code in range(128)], np.int64)
_CRC = np.array([zlib.crc32(bytes([byte]), _ONES) ^ _ONES for byte in range(256)], np.int64)
_QUESTION, _COLON, _DOUBLE, _SINGLE = (ord(c) for c in "?:\"'")


@njit(cache=True, nogil=True)
def scan(text):  # type: ignore[no-untyped-def]
    """Read ASCII codes, (n,) uint8.

    Returns counts (SIGNS,), where each of the W words starts and ends, (2, W), and the hashes (2, W) uint32 of each:
    CRC-32 of it in lower case, and of that after the word before it and a blank; the first has no such, 0.
    """
    n = text.size
    counts = np.zeros(SIGNS, np.int64)
    bounds = np.empty((2, (n + 1) // 2), np.int32)
    hashes = np.empty((2, (n + 1) // 2), np.uint32)
    words, before, i = 0, 0, 0
    while i < n:
        code = text[i]
        kind = _KINDS[code]
        if not kind & _ALNUM:
            counts[COMMAS] += code == _COMMA
            counts[QUESTIONS] += code == _QUESTION
            counts[COLONS] += code == _COLON
            counts[QUOTES] += code in (_DOUBLE, _SINGLE)
            counts[BREAKS] += code == _NEWLINE
            counts[CODES] += (kind & _CODE) != 0
            counts[SENTENCES] += (kind & _STOP) != 0 and (i + 1 == n or (_KINDS[text[i + 1]] & _SPACE) != 0)
            i += 1
            continue
        start, alone = i, _ONES
        after = _CRC[(before ^ _BLANK) & 255] ^ (before >> 8)
        while i < n and _KINDS[text[i]] & _ALNUM:
            low = _LOWER[text[i]]
            alone = _CRC[(alone ^ low) & 255] ^ (alone >> 8)
            after = _CRC[(after ^ low) & 255] ^ (after >> 8)
            i += 1
        bounds[0, words], bounds[1, words] = start, i
        hashes[0, words], hashes[1, words] = alone ^ _ONES, (after ^ _ONES) if words else 0
        counts[LETTERS] += i - start
        counts[CAPITALS] += (kind & _UPPER) != 0
        before = alone
        words += 1
    counts[WORDS], counts[NUMBERS], counts[MARKS] = words, _numbers(text), _marks(text)
    return counts, bounds[:, :words].copy(), hashes[:, :words].copy()


@njit(cache=True, nogil=True)
def _numbers(text):  # type: ignore[no-untyped-def]
    """Digits, also with points or commas between them, count once."""
    n, i, found = text.size, 0, 0
    while i < n:
        if not _KINDS[text[i]] & _DIGIT:
            i += 1
            continue
        found += 1
        while i < n and (
            _KINDS[text[i]] & _DIGIT
            or ((text[i] == _DOT or text[i] == _COMMA) and i + 1 < n and _KINDS[text[i + 1]] & _DIGIT)
        ):
            i += 1
    return found


@njit(cache=True, nogil=True)
def _marks(text):  # type: ignore[no-untyped-def]
    """Lines that begin with a mark of a list: -, * or a number with a point or a bracket, and white space."""
    n, i, found = text.size, 0, 0
    while i < n:
        if i and text[i - 1] != _NEWLINE:
            i += 1
            continue
        while i < n and _KINDS[text[i]] & _SPACE:
            i += 1
        end = i
        while end < n and _KINDS[text[end]] & _DIGIT:
            end += 1
        if end < n and (text[end] == _DOT or text[end] == _CLOSED if end > i else (_KINDS[text[end]] & _MARK) != 0):
            end += 1
            if end < n and _KINDS[text[end]] & _SPACE:
                found, i = found + 1, end + 1
                continue
        i += 1
    return found


@njit(cache=True, nogil=True)
def distinct(hashes):  # type: ignore[no-untyped-def]
    """How many different ones there are among (n,) uint32."""
    table = np.full(_room(hashes.size), -1, np.int64)
    found = 0
    for value in hashes:
        slot = _slot(table, value)
        found += table[slot] < 0
        table[slot] = value
    return found


@njit(cache=True, nogil=True)
def frequent(hashes, most, buckets, weights):  # type: ignore[no-untyped-def]
    """The `most` most frequent ones of (n,) uint32, of equally frequent ones those that come first, in buckets.

    weights : (m,) float32, of what occurs so many times. Returns bucket ids (G,) int64 and their weights' sums (G,)
    float32, G at most `most`: what falls into one bucket is added up there.
    """
    table = np.full(_room(hashes.size), -1, np.int64)
    place = np.empty(table.size, np.int64)
    values, times = np.empty(hashes.size, np.int64), np.zeros(hashes.size, np.int64)
    kinds, highest = 0, 0
    for value in hashes:
        slot = _slot(table, value)
        if table[slot] < 0:
            table[slot], place[slot], values[kinds] = value, kinds, value
            kinds += 1
        times[place[slot]] += 1
        highest = max(highest, times[place[slot]])
    ahead = np.zeros(highest + 2, np.int64)  # of each number of times, how many values are more frequent
    for k in range(kinds):
        ahead[times[k]] += 1
    total = 0
    for count in range(highest, -1, -1):
        ahead[count], total = total, total + ahead[count]
    order = np.empty(kinds, np.int64)
    for k in range(kinds):
        order[ahead[times[k]]] = k
        ahead[times[k]] += 1
    kept = min(kinds, most)
    table = np.full(_room(kept), -1, np.int64)
    ids, sums, used = np.empty(kept, np.int64), np.zeros(kept), 0
    for k in order[:kept]:
        bucket = values[k] % buckets
        slot = _slot(table, bucket)
        if table[slot] < 0:
            table[slot], place[slot], ids[used] = bucket, used, bucket
            used += 1
        sums[place[slot]] += weights[times[k]]
    return ids[:used].copy(), sums[:used].astype(np.float32)


@njit(cache=True, nogil=True, inline="always")
def _room(n):  # type: ignore[no-untyped-def]
    """A power of two with room for n values and as many again."""
    size = 16
    while size < 2 * n:
        size *= 2
    return size


@njit(cache=True, nogil=True, inline="always")
def _slot(table, value):  # type: ignore[no-untyped-def]
    """Where a value stands in the table, or would; its size is a power of two, and it is never full."""
    mask = table.size - 1
    slot = (value ^ (value >> 15)) & mask
    while table[slot] >= 0 and table[slot] != value:
        slot = (slot + 1) & mask
    return slot

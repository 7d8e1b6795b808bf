"""Cheap features of a call: counts of its text, hashed word 1-2-grams, and its labels.

Lengths alone say nothing about an answer's length; what is counted here are signs of the task: questions, list marks,
numbers, code, tools and whether they fit. Nothing depends on a call type being present. New counts come last: a model
reads as many of the first ones as it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.cache import ByteCache, digest
from swarmx.predict.reading import BUCKETS as BUCKETS
from swarmx.predict.reading import GRAMS as GRAMS
from swarmx.predict.reading import Piece, grams, last_turn, pieces_of, text_counts
from swarmx.predict.text import clip, text_of
from swarmx.predict.tools import TOOL_COUNTS, tool_counts, without_tools
from swarmx.types import Call, CallRecord

Floats = NDArray[np.float32]
COUNTS = (
    "characters", "words", "distinct_words", "mean_word_length", "numbers", "commas", "question_marks", "colons",
    "quotes", "lines", "list_marks", "code_marks", "sentences", "capitals", "non_ascii",
    "last_characters", "last_words", "last_lines", "last_list_marks", "last_question_marks", "last_commas",
    "last_capitals", "turns", "has_parent", "prompt_tokens", "assistant_turns", "tool_turns", *TOOL_COUNTS,
)  # fmt: skip
OF_CALL = COUNTS.index("has_parent")  # counts before it are of the text alone, the next four of the call
CHARS_PER_TOKEN = 4.0  # where the tokens of a prompt are not known


@dataclass(frozen=True, slots=True)
class Features:
    """Features of N calls.

    counts : (N, len(COUNTS)), each log(1 + count)
    gram_ids, gram_weights : (N, G) bucket and 1 + log(frequency); unused places have weight 0
    labels : per call (type or "", model)
    texts : clipped text, for the encoder; tools : JSON of the call's tools, "" where it has none
    """

    counts: Floats
    gram_ids: NDArray[np.integer]  # int64 as `features` reads it; stored ones may be narrower
    gram_weights: Floats
    labels: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    tools: tuple[str, ...]

    def rows(self, part: slice) -> Features:
        """The same of some of the calls."""
        grams = self.gram_ids[part], self.gram_weights[part]
        return Features(self.counts[part], *grams, self.labels[part], self.texts[part], self.tools[part])

    def take(self, at: NDArray[np.int64]) -> Features:
        """The features of chosen calls, in that order."""
        chosen = at.tolist()
        labels, tools = tuple(self.labels[i] for i in chosen), tuple(self.tools[i] for i in chosen)
        texts = tuple(self.texts[i] for i in chosen)
        return Features(self.counts[at], self.gram_ids[at], self.gram_weights[at], labels, texts, tools)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one text says, whoever sends it. counts : (len(COUNTS) - 4,); turns : log(1 + n) of assistant and tool;
    ids, weights : (G,) of its n-grams"""

    counts: Floats
    turns: tuple[float, float]
    ids: NDArray[np.int64]
    weights: Floats

    @property
    def bytes(self) -> int:
        return self.counts.nbytes + self.ids.nbytes + self.weights.nbytes + 400


class Memory:
    """What was read of earlier texts, each part within so many bytes: of whole texts, and of their pieces."""

    def __init__(self, limit_bytes: int) -> None:
        self.readings: ByteCache[Reading] = ByteCache(limit_bytes)
        self.pieces: ByteCache[Piece] = ByteCache(limit_bytes)


def features(calls: Sequence[Call | CallRecord], known: Memory | None = None) -> Features:
    """Features of calls on their way or of finished ones; equal texts are read once.

    known : what was read of earlier texts, which is not read again; new texts are added
    """
    texts, readings, call_counts, lists = [], [], [], []
    here: dict[bytes, Reading] = {}
    one_of: dict[str, str] = {}  # equal lists of tools are kept once
    for call in calls:
        whole = text_of(call.prompt)
        tools, asked = without_tools(whole)
        text = clip(asked)
        key = digest((tools, text, str(len(asked))))
        found = here.get(key) or (known.readings.get(key) if known is not None else None)
        if found is None:
            found = read(tools, text, len(asked), None if known is None else known.pieces)
            if known is not None:
                known.readings.put(key, found, found.bytes)
        here[key] = found
        readings.append(found)
        call_counts.append((call.parent_id is not None, math.log1p(_prompt_tokens(call, whole)), *found.turns))
        texts.append(text)
        lists.append(one_of.setdefault(tools, tools))
    width = max((len(found.ids) for found in readings), default=0) or 1
    ids, weights = np.zeros((len(texts), width), np.int64), np.zeros((len(texts), width), np.float32)
    counts = np.zeros((len(texts), len(COUNTS)), np.float32)
    for i, (found, own) in enumerate(zip(readings, call_counts, strict=True)):
        ids[i, : len(found.ids)], weights[i, : len(found.ids)] = found.ids, found.weights
        counts[i, :OF_CALL], counts[i, OF_CALL + 4 :] = found.counts[:OF_CALL], found.counts[OF_CALL:]
        counts[i, OF_CALL : OF_CALL + 4] = own
    labels = tuple((call.type or "", call.model) for call in calls)
    return Features(counts, ids, weights, labels, tuple(texts), tuple(lists))


def _prompt_tokens(call: Call | CallRecord, whole: str) -> float:
    """As the call says; from its characters where it says nothing usable."""
    given = call.prompt_tokens
    return given if isinstance(given, int | float) and 0 < given < 1e9 else len(whole) / CHARS_PER_TOKEN


def read(tools: str, text: str, characters: int, pieces: ByteCache[Piece] | None = None) -> Reading:
    """Read a clipped text and the tools in front of it.

    characters : of the text before it was clipped; pieces : that were read before
    """
    begins, turns = last_turn(text)
    before, last = pieces_of(text, characters, begins, pieces, stems=bool(tools))
    counts = text_counts(before, last, characters, len(turns))
    whole = [*before, *last]
    counts = np.append(counts, tool_counts(tools, text, [piece.stems for piece in whole] if tools else []))
    own = (math.log1p(turns.count("assistant")), math.log1p(turns.count("tool")))
    return Reading(counts.astype(np.float32), own, *grams(whole))

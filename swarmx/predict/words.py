"""Token ids looked up word by word: most words have been seen, and tokenising was a quarter of a prediction."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST = 40_000  # words that are remembered, 8 MB; at that number all are forgotten
LONGEST = 40  # characters of a word that is remembered
SEAM = re.compile(r"(?<=\S)(?= [A-Za-z])")  # where every kind of tokenizer begins a new word
PROBE = "Plan a trip, then list 3 of its\n\n  steps: it's for Ana  and (Bo) a trip. Über alles, as we say. A trip"


class Words:
    """A tokenizer that remembers words, a word being all from one seam to the next.

    apart : whether it gives words the same ids alone as in a text; where not, nothing is remembered
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self._known = tokenizer, dict[str, list[int]]()
        halves = PROBE[: len(PROBE) // 2], PROBE
        self.apart = all(self._by_word(text) == self._whole(text) for text in halves)

    def ids(self, text: str) -> list[int]:
        """What the tokenizer makes of the text, without special tokens."""
        return self._by_word(text) if self.apart else self._whole(text)

    def _whole(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def _by_word(self, text: str) -> list[int]:
        words = SEAM.split(text)
        found = [self._known.get(word) for word in words]
        if None in found:
            fresh = self._read(list(dict.fromkeys(w for w, ids in zip(words, found, strict=True) if ids is None)))
            found = [fresh[word] if ids is None else ids for word, ids in zip(words, found, strict=True)]
        return [number for ids in found if ids for number in ids]

    def _read(self, words: list[str]) -> dict[str, list[int]]:
        """Tokenise words that are new, all at once, in the order in which they stand in the text."""
        encoded = self.tokenizer.encode("".join(words), add_special_tokens=False)
        fresh: dict[str, list[int]] = {word: [] for word in words}
        at, end = 0, len(words[0])
        for number, (_, until) in zip(encoded.ids, encoded.offsets, strict=True):
            while until > end:
                at += 1
                end += len(words[at])
            fresh[words[at]].append(number)
        if len(self._known) > MOST:
            self._known = {}
        self._known.update((word, ids) for word, ids in fresh.items() if len(word) <= LONGEST)
        return fresh

"""How long an answer is: tied to the words of its prompt by a rule that no policy is told.

Every word pulls the logarithm of the length up or down by an amount that only its hash knows; a remainder follows from
the whole text. A predictor can learn the words from records of earlier calls, never the remainder, and no number in the
prompt says the length.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

_word = re.compile(r"[^\W\d_]+")
_normal = NormalDist()


@dataclass(frozen=True, slots=True)
class HiddenRule:
    """Lognormal lengths with this mean and coefficient of variation over prompts of random words.

    rho2 : share of the log variance that the words explain; seed : another seed is another rule
    """

    mean_tokens: float = 80.0
    cv: float = 2.0
    rho2: float = 0.7
    seed: int = 0

    def length(self, text: str) -> int:
        """Output tokens of a prompt, at least 1; the same for the same text."""
        variance = log(1 + self.cv**2)
        words = set(_word.findall(text.lower()))
        known = sum(_draw(f"{self.seed}:{word}") for word in words) / sqrt(max(len(words), 1))
        rest = _draw(f"{self.seed}::{text}")
        z = sqrt(self.rho2) * known + sqrt(1 - self.rho2) * rest
        return max(1, round(self.mean_tokens * exp(sqrt(variance) * z - variance / 2)))


@lru_cache(maxsize=65536)
def _draw(key: str) -> float:
    """A standard normal number that is the same for the same key."""
    number = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=7).digest(), "big")
    return _normal.inv_cdf((number + 0.5) / 2**56)

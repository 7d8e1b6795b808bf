"""A bounded memory of the stream of finished calls: recent ones rather than old ones, every group, and the tails.

Each group (type, model, device) has two strata, calls beyond its 0.9 quantile and the others. Within a stratum the
examples are a weighted random sample whose weights fade with age; when the memory is full, the stratum that holds most
for its share gives one up. Rare groups are kept whole, and tails are over-represented: the weight that `draw` returns
with an example is the number of recent calls that it stands for, and undoes both in the fit.

Efraimidis and Spirakis (2006), Weighted Random Sampling with a Reservoir; Cormode et al. (2009), Forward Decay.
"""

from __future__ import annotations

import heapq
import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasketches import tdigest_double
from numpy.typing import NDArray

from swarmx.adapt.example import Example

TAIL_LEVEL = 0.9
TAIL_SHARE = 0.25  # of a group's places that its tail may hold before it counts as full
Stratum = tuple[str, str, str, bool]  # type, model, device, tail


@dataclass
class _Kept:
    """One stratum. heap : (key, seq, example), the next to go first; mass : faded count of all calls as of `at`"""

    heap: list[tuple[float, int, Example]] = field(default_factory=list)
    mass: float = 0.0
    at: int = 0

    def faded(self, seq: int, half_life: float) -> float:
        return self.mass * math.exp2(-(seq - self.at) / half_life)


@dataclass
class Reservoir:
    """rows, limit_bytes : both are upper bounds; half_life : calls after which one counts half"""

    rows: int = 100_000
    limit_bytes: int = 200 << 20
    half_life: float = 50_000.0
    seed: int = 0
    used_bytes: int = 0
    _strata: dict[Stratum, _Kept] = field(default_factory=dict)
    _lengths: dict[tuple[str, str, str], tdigest_double] = field(default_factory=dict)
    _fullest: list[tuple[float, Stratum]] = field(default_factory=list)
    _rng: np.random.Generator = field(init=False)
    _count: int = 0
    _last: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def __len__(self) -> int:
        return self._count

    def add(self, example: Example) -> None:
        """Take one in; one that cannot teach is left out. What has to go for it is chosen at random."""
        if not example.can_teach:
            return
        stratum = self._stratum(example)
        self._lengths[stratum[:3]].update(example.tokens)
        kept = self._insert(stratum, example)
        kept.mass, kept.at = kept.faded(example.seq, self.half_life) + 1.0, example.seq

    def _insert(self, stratum: Stratum, example: Example) -> _Kept:
        kept = self._strata.setdefault(stratum, _Kept())
        self._last = max(self._last, example.seq)
        # log(w) - log(e) orders as u^(1/w) does, without overflow: w doubles with every half-life, e is exponential
        key = example.seq * math.log(2) / self.half_life - math.log(self._rng.exponential())
        heapq.heappush(kept.heap, (key, example.seq, example))
        self.used_bytes += example.size_bytes
        self._count += 1
        self._note(stratum)
        while self._count > self.rows or self.used_bytes > self.limit_bytes:
            self._give_up()
        return kept

    def draw(self) -> tuple[list[Example], NDArray[np.float64]]:
        """All that is kept, oldest first, and how many recent calls each stands for relative to the mean, (N,)."""
        found: list[tuple[Example, float]] = []
        for kept in self._strata.values():
            if kept.heap:
                share = kept.faded(self._last, self.half_life) / len(kept.heap)
                found += [(example, share) for _, _, example in kept.heap]
        found.sort(key=lambda pair: pair[0].seq)
        weights = np.array([share for _, share in found], dtype=np.float64)
        return [example for example, _ in found], weights / max(float(weights.mean()), 1e-12) if found else weights

    def snapshot(self) -> tuple[list[Example], dict[str, Any]]:
        """What is kept, and as JSON has it what is known of the calls that are not."""
        tail = {example.seq for s, kept in self._strata.items() if s[3] for _, _, example in kept.heap}
        examples = self.draw()[0]
        about = {
            "tails": [example.seq in tail for example in examples],
            "masses": [[*stratum, kept.mass, kept.at] for stratum, kept in self._strata.items()],
            "lengths": [[*group, b64encode(sketch.serialize()).decode()] for group, sketch in self._lengths.items()],
        }
        return examples, about

    def restore(self, examples: Sequence[Example], about: dict[str, Any]) -> None:
        """Take over what `snapshot` gave. Raises KeyError or ValueError when it is something else."""
        for kind, model, device, sketch in about["lengths"]:
            self._lengths[kind, model, device] = tdigest_double.deserialize(b64decode(sketch))
        for example, tail in zip(examples, about["tails"], strict=True):
            self._insert((example.type, example.model, example.device, bool(tail)), example)
        for kind, model, device, tail, mass, at in about["masses"]:
            if kept := self._strata.get((kind, model, device, bool(tail))):
                kept.mass, kept.at = float(mass), int(at)

    def _stratum(self, example: Example) -> Stratum:
        group = (example.type, example.model, example.device)
        lengths = self._lengths.setdefault(group, tdigest_double(100))
        tail = not lengths.is_empty() and example.tokens > float(lengths.get_quantile(TAIL_LEVEL))
        return (*group, tail)

    def _note(self, stratum: Stratum) -> None:
        heapq.heappush(self._fullest, (-self._fullness(stratum), stratum))

    def _fullness(self, stratum: Stratum) -> float:
        return len(self._strata[stratum].heap) / (TAIL_SHARE if stratum[3] else 1 - TAIL_SHARE)

    def _give_up(self) -> None:
        """Drop the example that comes first in the fullest stratum; entries of the heap that are out of date go too."""
        while True:
            fullness, stratum = heapq.heappop(self._fullest)
            if stratum in self._strata and -fullness == self._fullness(stratum):
                break
        kept = self._strata[stratum]
        _, _, example = heapq.heappop(kept.heap)
        self.used_bytes -= example.size_bytes
        self._count -= 1
        if kept.heap:
            self._note(stratum)
        else:
            del self._strata[stratum]

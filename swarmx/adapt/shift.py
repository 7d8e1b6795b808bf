"""Made-up shifts of a recorded stream, for showing and measuring what the loop does about them.

lengths=2@0.5             from the middle of the stream on, every answer is twice as long
lengths:summary=0.5@0.3   the answers of one call type halve, from 30 % of the stream on
mix:story=5@0.5           a type comes five times as often relative to the others: those are thinned out
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from swarmx.errors import BadInput
from swarmx.types import CallRecord

_SPEC = re.compile(r"^(lengths|mix)(?::([^=@]+))?=([0-9.]+)@([0-9.]+)$")


@dataclass(frozen=True, slots=True)
class Shift:
    """what : lengths or mix; type : None for all calls; factor : > 0; share : of the stream before it begins"""

    what: str
    type: str | None
    factor: float
    share: float

    @classmethod
    def parse(cls, text: str) -> Shift:
        """Raises BadInput naming what was given and what would do."""
        found = _SPEC.match(text)
        if not found:
            raise BadInput(f"--shift {text!r}: give lengths=2@0.5, lengths:TYPE=2@0.5 or mix:TYPE=5@0.5")
        what, kind, factor, share = found.groups()
        try:
            made = cls(what, kind, float(factor), float(share))
        except ValueError:
            raise BadInput(f"--shift {text!r}: {factor} and {share} must be numbers") from None
        if not (made.factor > 0 and 0 < made.share < 1):
            raise BadInput(f"--shift {text!r}: the factor must be positive and the place inside (0, 1)")
        if what == "mix" and kind is None:
            raise BadInput(f"--shift {text!r}: a change of mix names the type, mix:TYPE=5@0.5")
        return made

    def applies(self, record: CallRecord) -> bool:
        return self.type is None or record.type == self.type

    def apply(self, records: Sequence[CallRecord], seed: int) -> tuple[list[CallRecord], int]:
        """The shifted stream and the place of its first shifted record. Raises BadInput for an unknown type.

        Longer answers keep their times; max_tokens grows with them, or the cap would hide the shift.
        """
        start = round(self.share * len(records))
        if self.type is not None and not any(record.type == self.type for record in records[start:]):
            known = ", ".join(sorted({record.type for record in records if record.type}))
            raise BadInput(f"--shift: no call of type {self.type!r} after the shift; types are {known or 'not given'}")
        if self.what == "lengths":
            return [*records[:start], *(self._longer(record) for record in records[start:])], start
        rng = np.random.default_rng(seed)
        keep = 1 / self.factor
        own, others = (1.0, keep) if self.factor >= 1 else (self.factor, 1.0)
        drawn = rng.random(len(records))
        after = [r for i, r in enumerate(records[start:], start) if drawn[i] < (own if self.applies(r) else others)]
        return [*records[:start], *after], start

    def _longer(self, record: CallRecord) -> CallRecord:
        if not self.applies(record):
            return record
        most = None if record.max_tokens is None else max(1, round(record.max_tokens * self.factor))
        return replace(record, output_tokens=round(record.output_tokens * self.factor), max_tokens=most)

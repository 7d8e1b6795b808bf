"""Calls whose workflow is still running: what they cause is known once it has been quiet for a while."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from swarmx.adapt.example import Example, without_text
from swarmx.predict.targets import descendants, remaining_tokens
from swarmx.types import CallRecord


@dataclass
class OpenWorkflows:
    """Hands examples on with their workflow's targets.

    quiet_s : a workflow is over when none of its calls has ended for so long
    most : calls held; beyond it the longest-silent workflow counts as over
    """

    quiet_s: float = 60.0
    most: int = 20_000
    held: int = 0
    _open: OrderedDict[str, list[tuple[CallRecord, Example]]] = field(default_factory=OrderedDict)

    def add(self, record: CallRecord, example: Example) -> list[Example]:
        """Examples of the workflows that are over by now, the longest-silent first."""
        if not record.workflow_id:
            return [replace(example, work=0.0), *self.over(example.finished_s)]
        self._open.setdefault(record.workflow_id, []).append((without_text(record), example))
        self._open.move_to_end(record.workflow_id)
        self.held += 1
        return self.over(example.finished_s)

    def over(self, now: float) -> list[Example]:
        """Examples of the workflows that have been quiet until `now`."""
        done = []
        while self._open:
            name = next(iter(self._open))
            if now - self._open[name][-1][1].finished_s < self.quiet_s and self.held <= self.most:
                break
            done += self._close(name)
        return done

    def _close(self, name: str) -> list[Example]:
        pairs = self._open.pop(name)
        self.held -= len(pairs)
        records = [record for record, _ in pairs]
        work, calls = remaining_tokens(records), descendants(records)
        return [
            replace(example, work=float(rest), calls=tuple(sorted(caused.items())))
            for (_, example), rest, caused in zip(pairs, work, calls, strict=True)
        ]

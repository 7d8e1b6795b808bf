"""What a scheduler was told and what it answered, line by line, so that another process can decide the same again.

A journal begins with a snapshot, a pickle of the scheduler's own state: replay only journals that you wrote. After it
comes one JSON line per event. Prompts are left out; nothing is decided by their text.

    scheduler = journalled(preset("late"), sink)      # sink takes lines, without line ends
    for difference in replay(lines): ...              # elsewhere; nothing comes when all decisions are the same
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from swarmx.errors import BadInput
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Decision, Prediction, ReplicaState

EVENTS = (
    "arrive", "predicted", "started", "progress", "finished", "refused", "replicas_changed", "placed", "waits", "tick",
)  # fmt: skip
VERSION = 1
SNAPSHOT_BEGINS = '{"version"'


def journalled(scheduler: Scheduler, sink: Callable[[str], None], every: int = 100_000) -> Scheduler:
    """The same scheduler, from now on telling `sink` everything, with a snapshot first and again after `every` events.

    A sink that raises stops the journal, never the scheduler. Calls beside `EVENTS` that change a scheduler are not
    written, and a replay shows it.
    """
    writer = _Writer(scheduler, sink, every)
    for name in EVENTS:  # shadowing on the instance: one without a journal pays nothing
        setattr(scheduler, name, writer.watching(name, getattr(scheduler, name)))
    return scheduler


def snapshot(scheduler: Scheduler) -> str:
    """The line that a journal begins with."""
    bare = copy(scheduler)
    for name in EVENTS:
        bare.__dict__.pop(name, None)
    return json.dumps({"version": VERSION, "snapshot": base64.b64encode(pickle.dumps(bare)).decode()})


class _Writer:
    """Turns calls of a scheduler's methods into lines, until its sink fails."""

    def __init__(self, scheduler: Scheduler, sink: Callable[[str], None], every: int) -> None:
        self.scheduler, self.every, self.left = scheduler, every, 0
        self.sink: Callable[[str], None] | None = sink

    def tell(self, line: Callable[[], str]) -> None:
        if self.sink is None:
            return
        try:
            self.sink(line())
        except Exception:  # whatever befalls a disk, calls are scheduled
            self.sink = None

    def watching(self, name: str, method: Callable[..., list[Decision] | None]) -> Callable[..., list[Decision] | None]:
        def told(*args: Any, **named: Any) -> list[Decision] | None:
            if self.left == 0:
                self.tell(lambda: snapshot(self.scheduler))
                self.left = self.every
            decisions = method(*args, **named)
            self.left -= 1
            self.tell(lambda: _line(name, args, named, decisions))
            return decisions

        return told


def _line(name: str, args: Sequence[Any], named: dict[str, Any], decisions: Sequence[Decision] | None) -> str:
    entry = {"event": name, "args": [_plain(a) for a in args], "decisions": [_decided(d) for d in decisions or ()]}
    return json.dumps(entry | ({"named": {k: _plain(v) for k, v in named.items()}} if named else {}))


def _decided(decision: Decision) -> list[Any]:
    """What a decision says, without its receipt."""
    said = [getattr(decision, f.name) for f in fields(decision) if f.name != "receipt"]
    return [type(decision).__name__, *said]


# ---- values ----


def _plain(value: Any) -> Any:
    if isinstance(value, Call):
        return {"call": _set_fields(replace(value, prompt=""))}
    if isinstance(value, CallRecord):
        return {"record": _set_fields(replace(value, prompt=None, embedding=None))}
    if isinstance(value, ReplicaState):
        return {"state": _set_fields(value)}
    if isinstance(value, Prediction):
        grids = {name: _grid(grid) for name, grid in value.downstream.items()}
        rest = None if value.remaining_tokens is None else _grid(value.remaining_tokens)
        return {"prediction": [_grid(value.tokens), value.source, grids, rest, value.model_version, value.age_s]}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _set_fields(value: Any) -> dict[str, Any]:
    """Fields that differ from their defaults."""
    given = asdict(value)
    return {f.name: given[f.name] for f in fields(value) if getattr(value, f.name) != f.default}


def _grid(grid: QuantileGrid) -> list[list[float]]:
    levels = [] if grid.levels is LEVELS else grid.levels.tolist()
    return [levels, grid.values.tolist()]


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(v) for v in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, given),) = plain.items()
    if kind == "prediction":
        tokens, source, grids, rest, version, age_s = given
        downstream = {name: _read(grid) for name, grid in grids.items()}
        return Prediction(_read(tokens), source, downstream, None if rest is None else _read(rest), version, age_s)
    tuples = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return {"call": Call, "record": CallRecord, "state": ReplicaState}[kind](**tuples)


def _read(grid: list[list[float]]) -> QuantileGrid:
    levels, values = grid
    return QuantileGrid(np.array(levels) if levels else LEVELS, np.array(values))


# ---- replay ----


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left the journal: line number, what was decided then, what is decided now."""

    line: int
    event: str
    then: list[Any]
    now: list[Any]


def replay(lines: Iterable[str], source: str = "journal") -> Iterator[Difference]:
    """Decide everything again and yield each difference. Raises BadInput naming the line that cannot be read."""
    scheduler: Scheduler | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if "snapshot" in entry:
                if entry["version"] != VERSION:
                    raise BadInput(f"{source} line {number}: version {entry['version']}, this swarmx reads {VERSION}")
                scheduler = pickle.loads(base64.b64decode(entry["snapshot"]))
                continue
            name, args = entry["event"], [_value(a) for a in entry["args"]]
            named = {k: _value(v) for k, v in entry.get("named", {}).items()}
        except (KeyError, ValueError, TypeError, EOFError, pickle.UnpicklingError) as problem:
            if isinstance(problem, BadInput):
                raise
            raise BadInput(f"{source} line {number}: is no journal entry ({problem})") from None
        if scheduler is None:
            raise BadInput(f"{source} line {number}: a journal begins with a snapshot")
        if name not in EVENTS:
            raise BadInput(f"{source} line {number}: unknown event {name!r}; known are {', '.join(EVENTS)}")
        try:
            decisions = getattr(scheduler, name)(*args, **named)
        except AttributeError as problem:
            raise BadInput(f"{source} line {number}: the snapshot is another version's ({problem})") from None
        now = json.loads(json.dumps([_decided(d) for d in decisions or ()]))
        if now != entry["decisions"]:
            yield Difference(number, name, entry["decisions"], now)

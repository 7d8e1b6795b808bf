"""One import from a foreign file to checked records: read, put on the log's own clock, store prompts as asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from swarmx.errors import BadInput
from swarmx.logs import IMPORTERS
from swarmx.logs.fields import Field, log_fields
from swarmx.logs.options import OUTPUT_TEXT, ImportOptions
from swarmx.logs.table import check_records
from swarmx.logs.values import CHARACTERS_PER_TOKEN, convert
from swarmx.types import CallRecord

PromptStorage = Literal["keep", "hash", "drop"]
PROMPT_STORAGE: tuple[PromptStorage, ...] = ("keep", "hash", "drop")
_TIMES = tuple(f.name for f in fields(CallRecord) if f.name.endswith("_s"))


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out of a file.

    records : checked, in order of arrival; the earliest time of the log is 0
    about : what `write_log` keeps beside them; origin_s is the source's own time (Unix seconds or whatever it counts)
        at the log's 0
    """

    records: list[CallRecord]
    about: Mapping[str, str]


def import_log(path: str | Path, name: str, options: ImportOptions, prompts: PromptStorage = "keep") -> Imported:
    """Read a foreign file with the importer `name`.

    prompts : keep the text; hash, keep its SHA-256 alone; or drop both. Kept text is hashed too, so that equal prompts
        can be kept out of training and test at once.
    Raises BadInput for an unknown name, a file without calls and whatever the importer or `check_records` refuse.
    """
    if name not in IMPORTERS:
        raise BadInput(f"unknown format {name!r}; choose one of {', '.join(IMPORTERS)}")
    if prompts not in PROMPT_STORAGE:
        raise BadInput(f"unknown prompt storage {prompts!r}; choose one of {', '.join(PROMPT_STORAGE)}")
    if options.columns and not IMPORTERS[name].has_columns:
        raise BadInput(f"--map says nothing to the format {name!r}, which has its own columns; use --format columns")
    records = IMPORTERS[name].read(path, options)
    if not records:
        raise BadInput(f"{path}: no calls in it; a log needs at least one")
    constants = _constants(options.constants)
    records, origin_s = from_zero([_stored(_filled(r, constants), prompts) for r in records])
    check_records(records, str(path))
    about = {"source": Path(path).name, "format": name, "prompts": prompts, "origin_s": repr(origin_s)}
    if options.estimate_tokens or OUTPUT_TEXT in options.columns:
        about["tokens"] = f"where the source counts none, estimated as characters / {CHARACTERS_PER_TOKEN}"
    if IMPORTERS[name].caveat:
        about["caveat"] = IMPORTERS[name].caveat
    return Imported(sorted(records, key=lambda r: r.arrival_s), about)


def from_zero(records: Sequence[CallRecord]) -> tuple[list[CallRecord], float]:
    """The records with their earliest arrival at 0, and the time that was there. Times that are no numbers stay."""
    starts = [r.arrival_s if r.workflow_arrival_s is None else min(r.arrival_s, r.workflow_arrival_s) for r in records]
    origin_s = min((s for s in starts if s == s and abs(s) != float("inf")), default=0.0)
    return [_shifted(r, origin_s) for r in records], origin_s


def _constants(texts: Mapping[str, str]) -> dict[Field, Any]:
    """`--set` values as their fields' types. Raises BadInput for one that does not fit."""
    try:
        return {f: convert(f, texts[f.name]) for f in log_fields() if f.name in texts}
    except ValueError as problem:
        raise BadInput(f"--set: {problem}") from None


def _filled(record: CallRecord, constants: Mapping[Field, Any]) -> CallRecord:
    """The constants in place of what the source left at its default."""
    return replace(record, **{f.name: v for f, v in constants.items() if getattr(record, f.name) == f.default})


def _shifted(record: CallRecord, origin_s: float) -> CallRecord:
    times = {name: getattr(record, name) for name in _TIMES}
    return replace(record, **{name: value - origin_s for name, value in times.items() if value is not None})


def _stored(record: CallRecord, prompts: PromptStorage) -> CallRecord:
    if record.prompt is None:
        return record if prompts != "drop" else replace(record, prompt_hash=None)
    digest = hashlib.sha256(record.prompt.encode("utf-8", "surrogatepass")).hexdigest()
    if prompts == "keep":
        return replace(record, prompt_hash=record.prompt_hash or digest)
    return replace(record, prompt=None, prompt_hash=digest if prompts == "hash" else None)

"""The columns of a log, derived from the fields of `CallRecord`: a new field there is a new column here."""

from __future__ import annotations

import types
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from swarmx.types import CallRecord

# Raise it when a reader of the old schema would misread a new log, and say so in data/SCHEMA.md.
SCHEMA_VERSION = 1

Kind = Literal["text", "number", "count", "bytes", "numbers", "texts"]
_KINDS: dict[Any, Kind] = {
    str: "text",
    float: "number",
    int: "count",
    bytes: "bytes",
    tuple[float, ...]: "numbers",
    tuple[str, ...]: "texts",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column.

    kind : text, number (float), count (int), bytes, numbers (floats kept as float32), texts
    required : a log without it is no log; default : what a record has where the log says nothing
    choices : the only values allowed, empty when any is
    """

    name: str
    kind: Kind
    required: bool
    default: Any
    choices: tuple[str, ...] = ()


@cache
def log_fields() -> tuple[Field, ...]:
    """Every field of `CallRecord` in order. Raises TypeError for a field whose type no column can hold."""
    hints = get_type_hints(CallRecord)
    return tuple(
        _field(f.name, hints[f.name], f.default is MISSING, None if f.default is MISSING else f.default)
        for f in fields(CallRecord)
    )


@cache
def field_names() -> tuple[str, ...]:
    """Names of the columns, in order."""
    return tuple(f.name for f in log_fields())


def _field(name: str, hint: Any, required: bool, default: Any) -> Field:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (a for a in get_args(hint) if a is not type(None))
    if get_origin(hint) is Literal:
        return Field(name, "text", required, default, get_args(hint))
    if hint not in _KINDS:
        raise TypeError(f"CallRecord.{name} is a {hint}, which no column can hold; use {list(_KINDS)}")
    return Field(name, _KINDS[hint], required, default)

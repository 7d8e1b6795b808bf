"""Any table of calls, CSV, TSV, JSON, JSON Lines or Parquet, read with a column map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.logs.fields import Field, field_names, log_fields
from swarmx.logs.options import OUTPUT_TEXT, Column, ImportOptions
from swarmx.logs.sources import Row, rows
from swarmx.logs.values import convert, estimated_tokens, prompt_text
from swarmx.types import CallRecord

SHOWN = 16  # columns named in an error message
# What to say when a column that no log can do without is missing.
_NEEDED = {
    "arrival_s": "--map arrival_s=COLUMN[:UNIT]",
    "model": "--map model=COLUMN or --set model=NAME",
    "output_tokens": "--map output_tokens=COLUMN or, to estimate, --map output_text=COLUMN",
}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One record per row. Columns named like a field need no map; an empty cell is a missing value.

    Without a status every call counts as ok, without a call id its row's number is taken. Output tokens are
    needed, or `output_text` to estimate them from.
    Raises BadInput naming file, line, field and value.
    """
    return read_rows(rows(path), path, options)


def read_rows(source: Iterable[Row], path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """`read` for rows that are already there; `path` is for error messages."""
    source = list(source)
    columns = _columns(source, options, path)
    return [_record(row, number, columns, options, path) for number, row in enumerate(source, 1)]


def look_up(values: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    if isinstance(values, Mapping) and path in values:
        return values[path]
    head, dot, rest = path.partition(".")
    while True:  # keys may hold dots themselves: gen_ai.usage.input_tokens
        if isinstance(values, Mapping) and head in values:
            return look_up(values[head], rest) if dot else values[head]
        if isinstance(values, list) and head.isdecimal() and int(head) < len(values):
            return look_up(values[int(head)], rest) if dot else values[int(head)]
        if not dot:
            return None
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"


def _columns(source: list[Row], options: ImportOptions, path: str | Path) -> dict[str, Column]:
    """The map and the columns named like a field. Raises BadInput for a path that no row has."""
    names = dict.fromkeys(name for row in source for name in row.values)
    known = ", ".join([name if name.isprintable() else repr(name) for name in names][:SHOWN])
    for field_name, column in options.columns.items():
        if source and not column.optional and all(look_up(row.values, column.path) is None for row in source):
            raise BadInput(f"{path}: no row has a value at {column.path!r} for {field_name}; its columns are {known}")
    own = {name: Column(name) for name in (*field_names(), OUTPUT_TEXT) if any(name in row.values for row in source)}
    columns = {**own, **options.columns}
    for name, remedy in _NEEDED.items():
        instead = name == "output_tokens" and OUTPUT_TEXT in columns
        if source and name not in columns and name not in options.constants and not instead:
            raise BadInput(f"{path}: no column for {name}; say {remedy}; its columns are {known}")
    return columns


def _record(
    row: Row, number: int, columns: Mapping[str, Column], options: ImportOptions, path: str | Path
) -> CallRecord:
    values: dict[str, Any] = {"call_id": str(number), "status": "ok"}
    for f in log_fields():
        column = columns.get(f.name)
        found = look_up(row.values, column.path) if column else None
        value = _converted(f, found, column.unit if column else None, row, path)
        if value is None and f.name in options.constants:
            value = _converted(f, options.constants[f.name], None, row, path)
        if value is not None:
            values[f.name] = value
    if OUTPUT_TEXT in columns and "output_tokens" not in values:
        values["output_tokens"] = estimated_tokens(prompt_text(look_up(row.values, columns[OUTPUT_TEXT].path) or ""))
    _place_durations(values, columns, row, path)
    for f in log_fields():
        if f.required and f.name not in values:
            raise BadInput(f"{path}: {row.place}, field {f.name}: no value; every call needs one")
    return CallRecord(**values)


def _converted(f: Field, value: Any, unit: str | None, row: Row, path: str | Path) -> Any:
    try:
        return convert(f, value, unit)
    except ValueError as problem:
        raise BadInput(f"{path}: {row.place}, field {f.name}: {str(value)[:80]!r} {problem}") from None


def _place_durations(values: dict[str, Any], columns: Mapping[str, Column], row: Row, path: str | Path) -> None:
    """Durations become times: first the arrival from the end, then everything else from the arrival."""
    relative = {name: c.relative for name, c in columns.items() if c.relative and name in values}
    if relative.get("arrival_s") == "-":
        if "finished_s" not in values or "finished_s" in relative:
            raise BadInput(f"{path}: {row.place}, field arrival_s: -COLUMN needs finished_s to be a time")
        values["arrival_s"] = values["finished_s"] - values["arrival_s"]
    for name, sign in relative.items():
        if sign == "+":
            if "arrival_s" not in values or name == "arrival_s":
                raise BadInput(f"{path}: {row.place}, field {name}: +COLUMN needs arrival_s to be a time")
            values[name] += values["arrival_s"]

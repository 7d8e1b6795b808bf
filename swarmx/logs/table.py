"""Execution logs as Parquet files: one row per `CallRecord`, one column per field, zstd, checksummed pages.

The schema version stands in the file's metadata, beside what the writer has to say about the log's origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmx.errors import BadInput
from swarmx.files import replacing
from swarmx.logs.fields import SCHEMA_VERSION, Field, field_names, log_fields
from swarmx.logs.valid import check_table
from swarmx.types import CallRecord

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION_KEY, _ABOUT_KEY = b"swarmx.log.schema", b"swarmx.log.about"
_HOW = "make one with `swarmx log import` or `swarmx log record`"


def arrow() -> Any:
    """The pyarrow module. Raises BadInput, naming the extra, when it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise BadInput("logs need pyarrow; install it with: pip install 'swarmx-scheduler[train]'") from None
    return pyarrow


def write_log(records: Iterable[CallRecord], path: str | Path, about: Mapping[str, str] | None = None) -> None:
    """Write the records in the order given; the file appears whole or not at all.

    about : what a reader should know of the log (source, caveat, date), kept in the file's metadata
    Raises BadInput for an empty log and for a record that `check_table` refuses; then nothing is written.
    """
    path = Path(path)
    table = table_of(records, str(path))
    check_table(table, str(path))
    import pyarrow.parquet as pq

    metadata = {_VERSION_KEY: str(SCHEMA_VERSION), _ABOUT_KEY: json.dumps(dict(about or {}))}
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd", write_page_checksum=True)


def read_log(path: str | Path) -> list[CallRecord]:
    """Every record of a log, in file order. Raises BadInput as `read_table` does."""
    return records_of(read_table(path))


def read_table(path: str | Path) -> pa.Table:
    """A log as a pyarrow table with exactly the columns of `CallRecord`, checked.

    Columns that an older log lacks are filled with the field's default.
    Raises BadInput, naming the file and where it can the column and row, when the file is missing, truncated
    or no log, has a newer schema, an unknown or mistyped column, lacks a required one, or holds a value that
    `check_table` refuses.
    """
    table = read_any_parquet(path)
    _check_version(table.schema.metadata or {}, path)
    missing = [f.name for f in log_fields() if f.required and f.name not in table.column_names]
    unknown = [name for name in table.column_names if name not in field_names()]
    if missing:
        raise BadInput(f"{path}: the required column {missing[0]!r} is missing; {_HOW}")
    if unknown or len(set(table.column_names)) < table.num_columns:
        what = f"unknown column {unknown[0]!r}" if unknown else "two columns of one name"
        raise BadInput(f"{path}: {what}; a log has the columns {', '.join(field_names())}")
    table = arrow().table([_column(table, f, path) for f in log_fields()], schema=schema())
    check_table(table, str(path))
    return table


def read_about(path: str | Path) -> dict[str, str]:
    """What the writer said about the log; empty when nothing. Raises BadInput when the file is no log."""
    metadata = _read(Path(path), lambda pq, file: pq.read_schema(file)).metadata or {}
    _check_version(metadata, path)
    try:
        return {str(k): str(v) for k, v in json.loads(metadata.get(_ABOUT_KEY, b"{}")).items()}
    except (ValueError, AttributeError):
        raise BadInput(f"{path}: its description is damaged; {_HOW}") from None


def schema() -> pa.Schema:
    """Column names and Arrow types of a log, in the order of `CallRecord`'s fields."""
    pa = arrow()
    kinds = {
        "text": pa.string(),
        "number": pa.float64(),
        "count": pa.int64(),
        "bytes": pa.binary(),
        "numbers": pa.list_(pa.float32()),
        "texts": pa.list_(pa.string()),
    }
    return pa.schema([pa.field(f.name, kinds[f.kind], nullable=f.default is None) for f in log_fields()])


def table_of(records: Iterable[CallRecord], source: str) -> pa.Table:
    """The records as a table, unchecked but for types.

    Raises BadInput naming `source`, row, field and value where a value has another type than its column.
    """
    pa = arrow()
    rows = list(records)
    columns = []
    for column in schema():
        values = [getattr(r, column.name) for r in rows]
        try:
            columns.append(pa.array(values, column.type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            raise BadInput(_misfit(values, column, source)) from None
    return pa.table(columns, schema=schema())


def check_records(records: Iterable[CallRecord], source: str) -> None:
    """`check_table` for records in memory; `source` names them in the error."""
    check_table(table_of(records, source), source)


def records_of(table: pa.Table) -> list[CallRecord]:
    """The rows of a checked table as records; an empty cell takes the field's default."""
    columns: list[Sequence[Any]] = []
    for field in log_fields():
        values = table[field.name].to_pylist()
        if field.kind in ("numbers", "texts"):
            values = [v if v is None else tuple(v) for v in values]
        columns.append(values if field.default is None else [field.default if v is None else v for v in values])
    return [CallRecord(*row) for row in zip(*columns, strict=True)]


def read_any_parquet(path: str | Path) -> pa.Table:
    """Any Parquet file as a table, of whatever columns. Raises BadInput when it is missing or damaged."""

    def load(pq: Any, file: Path) -> Any:
        table = pq.read_table(file, page_checksum_verification=True)
        _ = table.column_names  # decoded here, where a damaged name is still caught
        return table

    return _read(Path(path), load)


def _read(path: Path, load: Callable[[Any, Path], Any]) -> Any:
    """What `load(pyarrow.parquet, path)` gives; every way in which a file can be broken becomes BadInput."""
    pa = arrow()
    import pyarrow.parquet as pq

    if not path.exists():
        raise BadInput(f"{path}: no such log; {_HOW}")
    if not path.is_file():
        raise BadInput(f"{path}: a log is one Parquet file, this is a directory; name the file in it")
    try:
        return load(pq, path)
    except (pa.ArrowException, OSError, ValueError) as problem:
        first = str(problem).strip().split("\n")[0][:120]
        raise BadInput(f"{path}: not a whole Parquet file ({first}); {_HOW}") from None


def _check_version(metadata: Mapping[bytes, bytes], path: str | Path) -> None:
    written = metadata.get(_VERSION_KEY)
    if written is None:
        raise BadInput(
            f"{path}: no swarmx log, it carries no schema version; convert it with `swarmx log import --format columns`"
        )
    if not written.isdigit() or int(written) > SCHEMA_VERSION:
        raise BadInput(
            f"{path}: its schema version is {written.decode(errors='replace')!r}, this swarmx reads up to "
            f"{SCHEMA_VERSION}; upgrade swarmx-scheduler"
        )


def _column(table: pa.Table, field: Field, path: str | Path) -> pa.ChunkedArray:
    pa = arrow()
    wanted = schema().field(field.name).type
    if field.name not in table.column_names:
        return pa.chunked_array([pa.array([field.default] * table.num_rows, wanted)])
    column = table[field.name]
    try:
        column = column.cast(wanted)
        column.validate(full=True)  # offsets and UTF-8: a damaged file must not reach Python strings
        return column
    except (pa.ArrowException, ValueError):
        raise BadInput(
            f"{path}: column {field.name!r} is of type {column.type}, a log has {wanted} there; "
            "convert it with `swarmx log import --format columns`"
        ) from None


def _misfit(values: Sequence[Any], column: pa.Field, source: str) -> str:
    pa = arrow()
    for row, value in enumerate(values, 1):
        try:
            pa.array([value], column.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return f"{source}: row {row}, field {column.name}: {str(value)[:80]!a} is no {column.type}"
    return f"{source}: field {column.name} does not fit {column.type}"

"""Reading other people's files: every way in which one can be broken becomes one sentence."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from swarmx.errors import BadInput


class Row(NamedTuple):
    """One row of a source with the place that an error message names ("line 7", "entry 3")."""

    place: str
    values: dict[str, Any]


def read_text(path: str | Path) -> str:
    """Content of a UTF-8 file, unpacked when its name ends in .gz. Raises BadInput when it cannot be read."""
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a directory; name one file of it")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path}: byte {problem.start} is no UTF-8; save the file as UTF-8 text") from None
    except (OSError, EOFError) as problem:
        raise BadInput(f"{path}: cannot be read ({problem})") from None


def read_json(path: str | Path) -> Any:
    """The one JSON value in a file. Raises BadInput when there is none or it is cut off."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str | bytes, place: str) -> Any:
    """A JSON value. Raises BadInput naming `place` when it is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise BadInput(f"{place}: the JSON is nested too deeply to be a log") from None
    except ValueError as problem:
        raise BadInput(f"{place}: not JSON, or cut off ({problem})") from None


def json_objects(path: str | Path) -> Iterator[Row]:
    """The objects of a JSON Lines file, of a JSON array, or a single object. Raises BadInput for anything else."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        entries = [(f"entry {i}", v) for i, v in enumerate(parse_json(text, str(path)), 1)]
    else:
        lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) > 1 and not _is_json(lines[0][1]):  # one object, written over many lines
            entries = [("entry 1", parse_json(text, str(path)))]
        else:
            entries = [(f"line {i}", parse_json(line, f"{path}: line {i}")) for i, line in lines]
    for place, value in entries:
        if not isinstance(value, dict):
            raise BadInput(f"{path}: {place} is a {type(value).__name__}, an object was expected")
        yield Row(place, value)


def csv_rows(path: str | Path) -> Iterator[Row]:
    """Rows of a CSV file with a header (tabs where the name says .tsv); empty cells are None.

    Raises BadInput for a missing header, a repeated column or a row of another length.
    """
    name = str(path).removesuffix(".gz")
    lines = read_text(path).splitlines(keepends=True)
    reader = csv.reader(lines, delimiter="\t" if name.endswith(".tsv") else ",", strict=True)
    try:
        header = next(reader, [])
        if not header or len(set(header)) < len(header):
            raise BadInput(f"{path}: line 1 must name every column once, it is {header!r}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise BadInput(f"{path}: line {reader.line_num} has {len(cells)} cells, the header {len(header)}")
            yield Row(f"line {reader.line_num}", {k: v if v else None for k, v in zip(header, cells, strict=True)})
    except csv.Error as problem:
        raise BadInput(f"{path}: line {reader.line_num} is no CSV ({problem})") from None


def parquet_rows(path: str | Path) -> Iterator[Row]:
    """Rows of any Parquet file. Raises BadInput when it is none."""
    from swarmx.logs.table import read_any_parquet

    for place, values in enumerate(read_any_parquet(path).to_pylist(), 1):
        yield Row(f"row {place}", values)


def rows(path: str | Path) -> Iterator[Row]:
    """Rows of a CSV, TSV, JSON, JSON Lines or Parquet file, told apart by its name. Raises BadInput otherwise."""
    kind = Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind in (".csv", ".tsv", ".txt"):
        return csv_rows(path)
    if kind in (".json", ".jsonl", ".ndjson", ".log"):
        return json_objects(path)
    if kind == ".parquet":
        return parquet_rows(path)
    raise BadInput(f"{path}: a name ending in {kind!r} says nothing; use .csv, .tsv, .json, .jsonl or .parquet")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""Execution logs: tables of call records, importers of other formats, checks, workflows to replay.

`IMPORTERS` is the registry that `swarmx log import --format` and `swarmx policies` list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swarmx.logs import columns, otel
from swarmx.logs.options import ImportOptions
from swarmx.types import CallRecord


@dataclass(frozen=True, slots=True)
class Importer:
    """A source format.

    read : file and options -> records with the source's own times; raises BadInput naming the file and the place in it
    description : one line; caveat : what a log made from it cannot show, kept in the log
    has_columns : takes a column map
    """

    read: Callable[[str | Path, ImportOptions], list[CallRecord]]
    description: str
    caveat: str = ""
    has_columns: bool = False


IMPORTERS = {
    "columns": Importer(
        columns.read, "CSV, TSV, JSON, JSON Lines or Parquet with a column map (--map)", has_columns=True
    ),
    "otel": Importer(
        otel.read,
        "OpenTelemetry GenAI spans: OTLP/JSON or {trace_id, spans} files",
        "spans name callers, not what a call waited for: parents between siblings are inferred from time",
    ),
}

"""Mooncake traces: timestamp (ms), input_length, output_length, hash_ids of 512-token prompt blocks."""

from __future__ import annotations

from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.types import CallRecord

COLUMNS = {
    "arrival_s": Column("timestamp", "ms"),
    "prompt_tokens": Column("input_length"),
    "output_tokens": Column("output_length"),
}
CONSTANTS = {"model": "unnamed"}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per row, each its own workflow. Raises BadInput naming file, line and field."""
    return columns.read(path, options.over(COLUMNS, CONSTANTS))

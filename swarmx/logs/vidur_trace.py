"""Vidur traces: arrived_at (seconds), num_prefill_tokens, num_decode_tokens; arrivals and lengths only."""

from __future__ import annotations

from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.types import CallRecord

COLUMNS = {
    "arrival_s": Column("arrived_at"),
    "prompt_tokens": Column("num_prefill_tokens"),
    "output_tokens": Column("num_decode_tokens"),
}
CONSTANTS = {"model": "unnamed"}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per row, each its own workflow. Raises BadInput naming file, line and field."""
    return columns.read(path, options.over(COLUMNS, CONSTANTS))

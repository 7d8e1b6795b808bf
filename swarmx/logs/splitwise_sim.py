"""SplitwiseSim traces: request_id, arrival_timestamp (seconds), prompt_size, token_size; arrivals and lengths only."""

from __future__ import annotations

from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.types import CallRecord

COLUMNS = {
    "call_id": Column("request_id"),
    "arrival_s": Column("arrival_timestamp"),
    "prompt_tokens": Column("prompt_size"),
    "output_tokens": Column("token_size"),
}
CONSTANTS = {"model": "unnamed"}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per row, each its own workflow. Raises BadInput naming file, line and field."""
    return columns.read(path, options.over(COLUMNS, CONSTANTS))

"""Azure LLM inference traces (2023, 2024): TIMESTAMP,ContextTokens,GeneratedTokens; arrivals and lengths only."""

from __future__ import annotations

from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.types import CallRecord

COLUMNS = {
    "arrival_s": Column("TIMESTAMP", "iso"),
    "prompt_tokens": Column("ContextTokens"),
    "output_tokens": Column("GeneratedTokens"),
}
CONSTANTS = {"model": "unnamed"}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per row, each its own workflow. Raises BadInput naming file, line and field."""
    return columns.read(path, options.over(COLUMNS, CONSTANTS))

"""LLMPerf individual_responses.json: lengths, time to first token and latency of each request, no arrivals."""

from __future__ import annotations

from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.logs.sources import Row, json_objects
from swarmx.types import CallRecord

COLUMNS = {
    "finished_s": Column("end_to_end_latency_s", "s", "+"),
    "first_token_s": Column("ttft_s", "s", "+"),
    "prompt_tokens": Column("number_input_tokens"),
    "output_tokens": Column("number_output_tokens"),
}
CONSTANTS = {"model": "unnamed", "arrival_s": "0"}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per response, all of them arriving at 0; one with an error_code has status error.

    Raises BadInput naming file, entry and field.
    """
    told = (_with_status(row) for row in json_objects(path))
    return columns.read_rows(told, path, options.over(COLUMNS, CONSTANTS))


def _with_status(row: Row) -> Row:
    failed = row.values.get("error_code") is not None
    return Row(row.place, {**row.values, "status": "error" if failed else "ok"})
